#pragma once

#include <atomic>
#include <cstdint>

namespace hawser {

// A number that one thread writes and any thread reads.
class OwnedCounter {
 public:
  void add(std::int64_t difference) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(difference),
                 std::memory_order_relaxed);
  }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace hawser
