#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "hawser/http.h"
#include "hawser/time.h"

namespace hawser::protocol::http {

// The part of the life of an HTTP/1 connection, and how long it may last: header_timeout for a head, idle_timeout
// between two requests. It has no clock and no timer: the timer of its owner runs all the time and is late in most
// phases, so that a request costs no operation of the timer.
class RequestPhase {
 public:
  // `idle`: no byte of the next request has come.
  enum class Kind : std::uint8_t { idle, head, body, running };

  // The connection is idle. The options outlive this.
  RequestPhase(const HttpOptions& options, Time now) noexcept : options_(options), began_(now) {}

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }

  // Returns when the check must come, if it is sooner than that of the timer that runs.
  std::optional<Duration> enter(Kind kind, Time now) noexcept {
    kind_ = kind;
    began_ = now;
    if (kind == Kind::head) return std::min(options_.header_timeout, options_.write_timeout);
    if (kind == Kind::idle && options_.idle_timeout < options_.header_timeout) return options_.idle_timeout;
    return std::nullopt;
  }
  // The client is still reading the last response: it is not idle yet.
  void still_reading(Time now) noexcept {
    if (kind_ == Kind::idle) began_ = now;
  }
  // The time until the next check. Zero: the phase has lasted too long.
  Duration left(Time now) const noexcept {
    if (kind_ != Kind::idle && kind_ != Kind::head) return check_interval();
    const Duration limit = kind_ == Kind::head ? options_.header_timeout : options_.idle_timeout;
    return std::clamp(limit - (now - began_), Duration::zero(), check_interval());
  }
  // The shortest of the timeouts, with that of responses.
  Duration check_interval() const noexcept {
    constexpr Duration least = std::chrono::milliseconds(1);
    return std::max(least, std::min({options_.header_timeout, options_.idle_timeout, options_.write_timeout}));
  }

 private:
  const HttpOptions& options_;
  Kind kind_ = Kind::idle;
  Time began_;
};

}  // namespace hawser::protocol::http
