#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/owned_counter.h"
#include "exec/work_timer.h"
#include "hawser/detail/log_linear.h"
#include "hawser/detail/loop_access.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/metric_row.h"
#include "hawser/time.h"

namespace hawser::rpc {

// The values of a method that are one number on each loop. `Number` is OwnedCounter in MethodCounters, and
// std::uint64_t in MethodReport.
template <class Number>
struct MethodValues {
  Number active = {};         // Calls that are not answered in place and have not ended.
  Number request_bytes = {};  // Encoded arguments with their attachments; without stream items.
  Number reply_bytes = {};    // Likewise of results.
};

// How one of these values is shown.
template <class Number>
struct MethodValueRow {
  Number MethodValues<Number>::* value;
  MetricRow metric;         // In /metrics.
  std::string_view title;   // On the page of the method.
  std::string_view column;  // In the table "Methods" of the page /status.
  std::string_view key;     // The name of that column in JSON.
};

// Each value once, in the order of the pages. The sum over the loops, /metrics and the page /status have the rows of
// this table.
template <class Number>
inline constexpr std::array<MethodValueRow<Number>, 3> method_value_rows = {{
    {.value = &MethodValues<Number>::active,
     .metric = {MetricKind::gauge, "hawser_server_method_calls_in_flight", "Calls of a method that are in flight."},
     .title = "in flight",
     .column = "in flight",
     .key = "in_flight"},
    {.value = &MethodValues<Number>::request_bytes,
     .metric = {MetricKind::counter, "hawser_server_method_request_bytes",
                "Encoded arguments and attachments, without stream items.", "bytes"},
     .title = "request bytes",
     .column = "bytes in",
     .key = "request_bytes"},
    {.value = &MethodValues<Number>::reply_bytes,
     .metric = {MetricKind::counter, "hawser_server_method_reply_bytes",
                "Encoded results and attachments, without stream items.", "bytes"},
     .title = "reply bytes",
     .column = "bytes out",
     .key = "reply_bytes"},
}};
static_assert(sizeof(MethodValues<std::uint64_t>) == method_value_rows<std::uint64_t>.size() * sizeof(std::uint64_t),
              "method_value_rows needs one row for each member of MethodValues");

// Counters of one method on one loop. The loop's thread writes them, and any thread reads them.
//
// Reading the clock twice would cost a short call more than everything else that is counted. So the loop's readings are
// used: calls that end in the tick in which they began count with the mean of all such calls of that tick, and calls
// that take longer have the times of their ticks.
class MethodCounters : public MethodValues<OwnedCounter> {
 public:
  static constexpr std::size_t codes = static_cast<std::size_t>(ErrorCode::unauthenticated) + 1;  // The last one.
  using Buckets = detail::LogLinear<4, 42>;  // As in HistogramSnapshot.

  // An application may have made up the code of an error. The other functions take known codes.
  static ErrorCode known(ErrorCode code) noexcept {
    return static_cast<std::size_t>(code) < codes ? code : ErrorCode::internal;
  }
  // A call ends in a later tick than that in which it began.
  void end(ErrorCode code, Duration elapsed) noexcept {
    count(code);
    add_latency(nanoseconds(elapsed), 1);
  }

  std::array<OwnedCounter, codes> by_code;  // Calls that have ended, by the value of their ErrorCode.
  OwnedCounter latency_ns;                  // The sum.
  std::array<OwnedCounter, Buckets::buckets> latency;

 private:
  friend class MethodTable;
  static_assert(std::is_same_v<Duration, std::chrono::nanoseconds>);
  static std::uint64_t nanoseconds(Duration time) noexcept {
    return time < Duration::zero() ? 0 : static_cast<std::uint64_t>(time.count());
  }
  void count(ErrorCode code) noexcept { by_code[static_cast<std::size_t>(code)].add(1); }
  void add_latency(std::uint64_t ns, std::uint64_t calls) noexcept {
    latency[Buckets::index_of(ns)].add(static_cast<std::int64_t>(calls));
    latency_ns.add(static_cast<std::int64_t>(ns * calls));
  }

  std::uint64_t short_calls_ = 0;         // Calls that ended in the tick in which they began and have no latency yet.
  MethodCounters* next_short_ = nullptr;  // The next method that has such calls.
};

// The counters of all methods on one loop, by the index of the method. Those of a method take 5 KiB when it is first
// called.
class MethodTable final : exec::WorkTimer {
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
  // A call ends in the tick in which it began. Loop's thread only.
  void end_short(Loop& loop, MethodCounters& method, ErrorCode code) noexcept {
    method.count(code);
    if (short_methods_ == nullptr || tick_ != loop.now()) [[unlikely]]
      begin_tick(loop);
    if (method.short_calls_++ != 0) return;
    method.next_short_ = short_methods_;
    short_methods_ = &method;
  }
  // No call ends after this. The loop is about to end, so the calls of its last tick keep a latency of 0.
  void stop_timing(Loop& loop) noexcept {
    detail::LoopAccess::stop_timing(loop, *this);
    on_clock(tick_);
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

  void begin_tick(Loop& loop) noexcept {
    // The poller delivers input of the next tick before it returns to the loop.
    if (short_methods_ != nullptr) {
      detail::LoopAccess::stop_timing(loop, *this);
      on_clock(loop.now());
    }
    tick_ = loop.now();
    detail::LoopAccess::time_work(loop, *this);
  }
  // exec::WorkTimer
  void on_clock(Time now) noexcept override {
    std::uint64_t calls = 0;
    for (const MethodCounters* one = short_methods_; one != nullptr; one = one->next_short_) calls += one->short_calls_;
    while (MethodCounters* const one = short_methods_) {
      short_methods_ = std::exchange(one->next_short_, nullptr);
      one->add_latency(MethodCounters::nanoseconds(now - tick_) / calls, std::exchange(one->short_calls_, 0));
    }
  }

  Time tick_{};                              // The tick of the calls that have no latency yet.
  MethodCounters* short_methods_ = nullptr;  // The methods with such calls.
  const std::size_t methods_;
  const std::unique_ptr<std::atomic<MethodCounters*>[]> counters_;
  MethodCounters lost_;  // Calls of methods for whose counters there was no memory.
};

}  // namespace hawser::rpc
