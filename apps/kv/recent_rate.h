#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "hawser/time.h"

namespace hawser::kv {

// How fast a counter grows: in the last 16 intervals of 100 ms, as Redis measures it.
class RecentRate {
 public:
  static constexpr Duration interval = std::chrono::milliseconds(100);
  static constexpr std::size_t samples_max = 16;

  // The counter has this value now. One thread.
  void sample(Time now, std::uint64_t count) noexcept {
    const Sample& last = samples_[(next_ + samples_max - 1) % samples_max];
    if (size_ != 0 && now - last.time < interval) return;
    if (size_ != 0) {
      const Sample& oldest = samples_[size_ < samples_max ? 0 : next_];
      const double seconds = std::chrono::duration<double>(now - oldest.time).count();
      per_second_.store(static_cast<std::uint64_t>(static_cast<double>(count - oldest.count) / seconds),
                        std::memory_order_relaxed);
    }
    samples_[next_] = {now, count};
    next_ = (next_ + 1) % samples_max;
    if (size_ < samples_max) ++size_;
  }
  // Any thread.
  std::uint64_t per_second() const noexcept { return per_second_.load(std::memory_order_relaxed); }

 private:
  struct Sample {
    Time time{};
    std::uint64_t count = 0;
  };
  std::array<Sample, samples_max> samples_ = {};
  std::size_t size_ = 0;
  std::size_t next_ = 0;
  std::atomic<std::uint64_t> per_second_ = 0;
};

}  // namespace hawser::kv
