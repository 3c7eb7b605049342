#include "os/futex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace hawser {
namespace {

// Without its limit, this wait would not end.
TEST(Futex, AWaitEndsAfterItsTimeout) {
  const std::atomic<std::uint32_t> word{7};
  futex_wait(word, 7, std::chrono::milliseconds(1));
  futex_wait(word, 7, Duration::zero());
  futex_wait(word, 7, std::chrono::milliseconds(-1));
}

TEST(Futex, AWaitForAnotherValueEndsAtOnce) {
  const std::atomic<std::uint32_t> word{7};
  futex_wait(word, 8, forever);
}

TEST(Futex, AThreadIsWoken) {
  std::atomic<std::uint32_t> word{0};
  std::jthread sleeper([&] {
    while (word.load(std::memory_order_acquire) == 0) futex_wait(word, 0, forever);
  });
  word.store(1, std::memory_order_release);
  futex_wake(word);
}

}  // namespace
}  // namespace hawser
