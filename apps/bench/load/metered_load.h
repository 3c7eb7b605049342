#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/load/client_role.h"
#include "bench/load/handlers.h"
#include "bench/load/meter.h"
#include "bench/load/payload.h"
#include "bench/peers/peer.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"

namespace hawser::bench {

// Load of one cell. Any thread may call.
class MeteredLoad final : public PeerLoad {
 public:
  MeteredLoad(const RunOptions& options, std::string address, const Cell& cell, pid_t server)
      : address_(std::move(address)),
        ack_(options.reply == ReplyKind::ack),
        blocking_(cell.mode == Mode::threads),
        connections_(cell.mode == Mode::connections ? calls_at_once(options, cell) : 1),
        callers_(calls_at_once(options, cell)),
        payload_(cell.size_bytes),
        meter_(options.seconds, calls_at_once(options, cell), server) {}

  const std::string& address() const noexcept override { return address_; }
  unsigned callers() const noexcept override { return static_cast<unsigned>(callers_.size()); }
  unsigned connections() const noexcept override { return connections_; }
  bool blocking() const noexcept override { return blocking_; }
  bool ack() const noexcept override { return ack_; }
  std::string_view payload(std::size_t caller) const noexcept override { return payload_.of(caller); }

  void begin(std::size_t caller) noexcept override { callers_[caller].start = Meter::Clock::now(); }
  bool end(std::size_t caller, std::string_view reply) override {
    const auto now = Meter::Clock::now();
    const std::uint64_t calls = callers_[caller].calls;
    const Check check = (calls + caller) % calls_per_full_check == 0 || calls == 0 ? Check::all : Check::ends;
    return ended(callers_[caller], now, same(payload(caller), reply, check));
  }
  bool end(std::size_t caller, std::uint64_t bytes, std::uint64_t head) override {
    return ended(callers_[caller], Meter::Clock::now(), Ack{bytes, head} == ack_of(payload(caller)));
  }
  void fail(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    meter_.fail(text);
  }

  const Meter& meter() const noexcept { return meter_; }

 private:
  static constexpr std::uint64_t calls_per_full_check = 64;

  struct Caller {
    Meter::Clock::time_point start;
    std::uint64_t calls = 0;
  };

  bool ended(Caller& caller, Meter::Clock::time_point now, bool right) {
    const std::lock_guard lock(mutex_);
    if (caller.calls++ == 0) meter_.warm();
    if (right) {
      meter_.record(caller.start, now);
    } else {
      meter_.fail("a reply is not what was sent");
    }
    return meter_.go_on(now);
  }

  const std::string address_;
  const bool ack_;
  const bool blocking_;
  const unsigned connections_;
  std::vector<Caller> callers_;
  const Payload payload_;
  std::mutex mutex_;  // Protects the meter.
  Meter meter_;
};

}  // namespace hawser::bench
