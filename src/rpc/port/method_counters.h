#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "base/owned_counter.h"
#include "hawser/detail/log_linear.h"
#include "hawser/error.h"
#include "hawser/time.h"

namespace hawser::rpc {

// Counters of one method on one loop. The loop's thread writes them, and any thread reads them.
//
// Reading the clock twice would cost a short call more than everything else that is counted. So of the calls that end
// in the tick in which they began, the first of each tick is timed, and each 64th; the others count with the
// duration of the one that was timed last. Calls that take longer than a tick have the times of their ticks.
class MethodCounters {
 public:
  static constexpr std::size_t codes = static_cast<std::size_t>(ErrorCode::internal) + 1;
  static constexpr unsigned timed_interval = 64;
  using Buckets = detail::LogLinear<4, 42>;  // As in HistogramSnapshot.

  // A call begins. Returns true if it is to be timed.
  bool begin(Time tick, std::size_t bytes) noexcept {
    request_bytes.add(static_cast<std::int64_t>(bytes));
    if (tick_ == tick && --until_timed_ != 0) [[likely]]
      return false;
    tick_ = tick;
    until_timed_ = timed_interval;
    return true;
  }
  // An application may have made up the code of an error. The other functions take known codes.
  static ErrorCode known(ErrorCode code) noexcept {
    return static_cast<std::size_t>(code) < codes ? code : ErrorCode::internal;
  }
  // A call that was not timed ends in the tick in which it began.
  void end(ErrorCode code) noexcept {
    count(code);
    latency[last_bucket_].add(1);
    ++untimed_;
  }
  // Another call ends. `typical`: it stands for those that are not timed.
  void end(ErrorCode code, Duration elapsed, bool typical) noexcept {
    count(code);
    const std::uint64_t ns = elapsed < Duration::zero() ? 0 : static_cast<std::uint64_t>(elapsed.count());
    const std::size_t bucket = Buckets::index_of(ns);
    latency[bucket].add(1);
    latency_ns.add(static_cast<std::int64_t>(ns + last_ns_ * untimed_));
    untimed_ = 0;
    if (!typical) return;
    last_bucket_ = bucket;
    last_ns_ = ns;
  }

  std::array<OwnedCounter, codes> by_code;  // Calls that have ended, by the value of their ErrorCode.
  OwnedCounter active;                      // Calls that are not answered in place and have not ended.
  OwnedCounter request_bytes;               // Encoded arguments with their attachments; without stream items.
  OwnedCounter reply_bytes;                 // Likewise of results.
  OwnedCounter latency_ns;                  // The sum. Calls that are not timed are added by the next one that is.
  std::array<OwnedCounter, Buckets::buckets> latency;

 private:
  static_assert(std::is_same_v<Duration, std::chrono::nanoseconds>);
  void count(ErrorCode code) noexcept { by_code[static_cast<std::size_t>(code)].add(1); }

  Time tick_ = Time::min();
  unsigned until_timed_ = timed_interval;
  std::size_t last_bucket_ = 0;
  std::uint64_t last_ns_ = 0;
  std::uint64_t untimed_ = 0;  // Calls that are not in latency_ns yet.
};

// The counters of all methods on one loop, by the index of the method. Those of a method take 5 KiB when it is first
// called.
class MethodTable {
 public:
  explicit MethodTable(std::size_t methods)
      : methods_(methods), counters_(std::make_unique<std::atomic<MethodCounters*>[]>(methods)) {}
  MethodTable(const MethodTable&) = delete;
  MethodTable& operator=(const MethodTable&) = delete;
  ~MethodTable() {
    for (std::size_t i = 0; i < methods_; ++i) delete counters_[i].load(std::memory_order_relaxed);
  }

  // Loop's thread only.
  MethodCounters& of(std::size_t method) noexcept {
    if (method >= methods_) [[unlikely]]
      return lost_;
    MethodCounters* const found = counters_[method].load(std::memory_order_relaxed);
    return found != nullptr ? *found : make(method);
  }
  // Null if the method has not been called on this loop. Any thread.
  const MethodCounters* read(std::size_t method) const noexcept {
    return method < methods_ ? counters_[method].load(std::memory_order_acquire) : nullptr;
  }

 private:
  [[gnu::noinline, gnu::cold]] MethodCounters& make(std::size_t method) noexcept {
    MethodCounters* const made = new (std::nothrow) MethodCounters;
    if (made == nullptr) return lost_;
    counters_[method].store(made, std::memory_order_release);
    return *made;
  }

  const std::size_t methods_;
  const std::unique_ptr<std::atomic<MethodCounters*>[]> counters_;
  MethodCounters lost_;  // Calls of methods for whose counters there was no memory.
};

}  // namespace hawser::rpc
