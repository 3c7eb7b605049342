#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/owned_counter.h"
#include "hawser/detail/log_linear.h"
#include "hawser/time.h"
#include "heap/idle_memory.h"

namespace hawser::exec {

// The work of a loop since it was made.
struct LoopStatistics {
  using Buckets = detail::LogLinear<4, 42>;  // As in HistogramSnapshot.
  std::uint64_t ticks = 0;
  Duration busy{};           // Time in which it worked, without waiting and spinning.
  Duration longest{};        // The longest tick.
  std::string longest_work;  // The method that was called last in that tick; empty if there was none.
  std::array<std::uint64_t, Buckets::buckets> lengths{};  // Number of ticks by their length in nanoseconds.
  CachedMemory cached;                                    // By the thread that runs it now; nothing while none does.
  std::size_t offload_threads = 0;
  CachedMemory offload_cached;  // By these threads.
};

// The text of the warning that one tick took longer than LoopOptions::blocked_max. `work`: the method that was called
// last in it, or null.
std::string blocked_text(Duration blocked, Duration blocked_max, const std::string* work);

// Records the ticks of a loop. Its thread writes; any thread reads.
class TickRecord {
 public:
  static constexpr std::size_t work_bytes_max = 128;  // Longer names are cut.

  TickRecord() { longest_work_.reserve(work_bytes_max); }
  void add(Duration length, const std::string* work) noexcept {
    const std::uint64_t ns = length < Duration::zero() ? 0 : static_cast<std::uint64_t>(length.count());
    ticks_.add(1);
    busy_ns_.add(static_cast<std::int64_t>(ns));
    lengths_[LoopStatistics::Buckets::index_of(ns)].add(1);
    if (ns > longest_ns_.get()) [[unlikely]]
      set_longest(ns, work);
  }
  LoopStatistics read() const;

 private:
  void set_longest(std::uint64_t ns, const std::string* work) noexcept;

  OwnedCounter ticks_;
  OwnedCounter busy_ns_;
  OwnedCounter longest_ns_;
  std::array<OwnedCounter, LoopStatistics::Buckets::buckets> lengths_;
  mutable std::mutex lock_;  // Guards the next member.
  std::string longest_work_;
};

}  // namespace hawser::exec
