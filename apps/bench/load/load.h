#pragma once

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <string>

#include "bench/load/payload.h"
#include "bench/load/protocols.h"
#include "bench/results/histogram.h"
#include "bench/run/cell.h"
#include "bench/run/options.h"
#include "hawser/client.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

namespace hawser::bench {

// Keeps calls in flight. One coroutine for each makes one call after the other, checks the replies and records their
// latencies while counting. With RunOptions::rate_per_s, calls begin by the clock, whether or not earlier ones have
// ended, as long as no more are in flight than were added; the latency of a delayed call counts from its scheduled
// time. Runs on one loop's thread; the clients outlive it.
class Load {
 public:
  Load(Loop& loop, const RunOptions& options, Payload payload);

  // Adds a call in flight through `client` until stop() or until the connection is lost. With a rate: allows one more
  // call in flight.
  void add(Client& client);
  // The same over HTTP, without a rate.
  void add(HttpCaller& caller);
  void stop() noexcept { stopping_ = true; }
  // Suspends until no call is in flight.
  auto ended() noexcept { return callers_.join(); }
  bool idle() const noexcept { return callers_.empty(); }

  void count(bool on) noexcept { counting_ = on; }
  // Returns whether every coroutine has had a reply, so that the full number of calls has been in flight.
  bool warm() const noexcept { return cold_ == 0 || (rate_per_s_ > 0 && calls_ended_ > 0); }

  const LatencyHistogram& latencies_ns() const noexcept { return latencies_ns_; }
  std::uint64_t errors() const noexcept { return errors_; }
  const std::string& first_error() const noexcept { return first_error_; }

 private:
  using Clock = std::chrono::steady_clock;

  class FreeCaller;

  template <auto handler>
  Task<void> call_on(Client& client);
  Task<void> call_over_http(HttpCaller& caller);
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
  const bool loan_;
  const double rate_per_s_;
  std::uint64_t calls_begun_ = 0;
  std::uint64_t calls_ended_ = 0;
  // With a rate: clients that may make the next calls; the one that has waited longest is first.
  std::deque<Client*> free_;
  std::coroutine_handle<> starved_;  // The pacer, while it waits for a free client.
  bool counting_ = false;
  bool stopping_ = false;
  std::uint64_t cold_ = 0;  // Callers that have had no reply yet.
  std::uint64_t errors_ = 0;
  std::string first_error_;
  LatencyHistogram latencies_ns_;
  Scope callers_;  // Destroyed first: the callers use all other members.
};

}  // namespace hawser::bench
