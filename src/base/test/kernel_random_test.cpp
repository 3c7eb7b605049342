#include "base/kernel_random.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace hawser {
namespace {

TEST(KernelRandom, NumbersDiffer) {
  std::set<std::uint64_t> numbers;
  for (int i = 0; i < 1000; ++i) numbers.insert(kernel_random());
  EXPECT_EQ(numbers.size(), 1000U);
}

TEST(KernelRandom, FillsAllBytes) {
  // One call of the kernel returns at most 256 bytes without the possibility of an interruption; this is more.
  std::array<std::byte, 1000> bytes{};
  std::array<bool, 1000> changed{};
  for (int i = 0; i < 8; ++i) {
    fill_random(bytes);
    for (std::size_t at = 0; at < bytes.size(); ++at) changed[at] = changed[at] || bytes[at] != std::byte{0};
  }
  for (const bool one : changed) EXPECT_TRUE(one);
  fill_random({});
}

}  // namespace
}  // namespace hawser
