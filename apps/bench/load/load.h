#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <string>

#include "bench/load/payload.h"
#include "bench/results/histogram.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

namespace hawser::bench {

// Calls kept in flight: one coroutine for each makes call after call, checks the replies and, while counting, records
// how long they took. With Options::rate_per_s calls begin by the clock instead, whether or not earlier ones have
// ended, as long as no more are in flight than were added; the time of one that had to wait for that counts from when
// it should have begun. One loop's thread only; the clients outlive it.
class Load {
 public:
  Load(Loop& loop, const Options& options, Payload payload);

  // Keeps one more call in flight through `client`, or allows it, until stop() or until the connection is lost.
  void add(Client& client);
  void stop() noexcept { stopping_ = true; }
  // Suspends until nothing is in flight.
  auto ended() noexcept { return callers_.join(); }
  bool idle() const noexcept { return callers_.empty(); }

  void count(bool on) noexcept { counting_ = on; }
  // Whether every coroutine has seen a reply, so that as many calls as asked for have been in flight.
  bool warm() const noexcept { return cold_ == 0 || (rate_per_s_ > 0 && calls_ended_ > 0); }

  const Histogram& latencies_ns() const noexcept { return latencies_ns_; }
  std::uint64_t errors() const noexcept { return errors_; }
  const std::string& first_error() const noexcept { return first_error_; }

 private:
  using Clock = std::chrono::steady_clock;

  class FreeCaller;

  template <auto handler>
  Task<void> call_on(Client& client);
  template <auto handler>
  Task<void> pace();
  template <auto handler>
  Task<void> call_once(Client& client, std::uint64_t number, Clock::time_point intended);
  template <auto handler>
  void add_to(Client& client);
  bool settle(std::uint64_t number, Check check, const auto& reply);
  void record(Clock::time_point start, Clock::time_point end) noexcept {
    if (counting_) latencies_ns_.record(static_cast<std::uint64_t>((end - start).count()));
  }
  void fail(std::string text);

  Loop& loop_;
  const Payload payload_;
  const ReplyKind reply_;
  const HandlerKind handler_;
  const double rate_per_s_;
  std::uint64_t calls_begun_ = 0;
  std::uint64_t calls_ended_ = 0;
  std::deque<Client*> free_;         // With a rate: who may make the next calls; who has waited longest is first.
  std::coroutine_handle<> starved_;  // The pacer, while it waits for one of them.
  bool counting_ = false;
  bool stopping_ = false;
  std::uint64_t cold_ = 0;
  std::uint64_t errors_ = 0;
  std::string first_error_;
  Histogram latencies_ns_;
  Scope callers_;  // Ends first: the callers use all the rest.
};

}  // namespace hawser::bench
