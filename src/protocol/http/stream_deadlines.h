#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hawser/time.h"

namespace hawser::protocol::http {

// The times at which a request of an HttpClientStream fails, or sends its body without being asked for it. Only an
// operation that waits can stand still. No clock and no timer.
class StreamDeadlines {
 public:
  enum class Direction : std::uint8_t { reading, writing };
  // A time that is over: that for the whole request or its opening, that in which a byte must move, or that in which
  // the server may ask for the body.
  enum class Due : std::uint8_t { nothing, response, standstill, body };

  explicit StreamDeadlines(Duration stall_timeout) noexcept : stall_timeout_(stall_timeout) {}

  void limit_request(Time at) noexcept { request_ = at; }
  // Until on_opened().
  void limit_opening(Time at) noexcept { opening_ = at; }
  Time opening() const noexcept { return opening_; }
  void on_opened() noexcept { opening_ = Time::max(); }

  void await_continue(Time until) noexcept {
    awaits_continue_ = true;
    continue_ = until;
  }
  void end_continue() noexcept { awaits_continue_ = false; }
  bool awaits_continue() const noexcept { return awaits_continue_; }

  // One operation a direction at a time.
  void begin(Direction direction, Time now) noexcept { waits_[index(direction)] = {.active = true, .since = now}; }
  void end(Direction direction) noexcept { waits_[index(direction)].active = false; }
  bool active(Direction direction) const noexcept { return waits_[index(direction)].active; }

  // `moved`: the time at which the connection last moved a byte; Time::min() without a connection.
  Time next(Time moved) const noexcept {
    const Time body = awaits_continue_ && active(Direction::writing) ? continue_ : Time::max();
    return std::min({request_, opening_, stall(moved), body});
  }
  Due check(Time now, Time moved) const noexcept {
    if (now >= std::min(request_, opening_)) return Due::response;
    if (now >= stall(moved)) return Due::standstill;
    return awaits_continue_ && now >= continue_ ? Due::body : Due::nothing;
  }

 private:
  struct Wait {
    bool active = false;
    Time since{};
  };

  static constexpr std::size_t index(Direction direction) noexcept { return static_cast<std::size_t>(direction); }
  Time stall(Time moved) const noexcept {
    Time first = Time::max();
    for (const Wait& wait : waits_) {
      const Time since = std::max(wait.since, moved);
      if (wait.active && stall_timeout_ < Time::max() - since) first = std::min(first, since + stall_timeout_);
    }
    return first;
  }

  const Duration stall_timeout_;
  Time request_ = Time::max();
  Time opening_ = Time::max();
  Time continue_ = Time::max();
  bool awaits_continue_ = false;
  std::array<Wait, 2> waits_;
};

}  // namespace hawser::protocol::http
