#include "kv/engine/value_area.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace hawser::kv {
namespace {

// Pages of these bytes that have memory.
std::size_t resident_pages(char* data, std::size_t bytes) {
  std::vector<unsigned char> pages((bytes + ValueArea::unit_bytes - 1) / ValueArea::unit_bytes);
  EXPECT_EQ(mincore(data, bytes, pages.data()), 0);
  std::size_t resident = 0;
  for (const unsigned char page : pages) resident += page & 1U;
  return resident;
}

TEST(ValueArea, BlocksDoNotOverlapAndReturnTheirMemory) {
  constexpr std::size_t bytes_max = std::size_t{32} << 20;
  ValueArea area(bytes_max);
  struct Held {
    std::size_t bytes;
    char fill;
  };
  std::map<char*, Held> held;
  std::size_t used = 0;
  Random random(3);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4000; ++i) {
      const std::size_t bytes = 16'385 + random.below(random.chance(0.1) ? 4'000'000 : 60'000);
      while (!held.empty() && used + ValueArea::charge_of(bytes) > bytes_max) {
        const auto one = std::next(held.begin(), static_cast<std::ptrdiff_t>(random.below(held.size())));
        for (std::size_t at = 0; at < one->second.bytes; at += 997) ASSERT_EQ(one->first[at], one->second.fill);
        area.free(one->first, one->second.bytes);
        used -= ValueArea::charge_of(one->second.bytes);
        held.erase(one);
        ASSERT_LE(area.warm_bytes(), area.warm_bytes_max());
      }
      char* data = area.take_warm(bytes);
      if (data == nullptr) data = area.take_cold(bytes);
      ASSERT_NE(data, nullptr);
      const auto next = held.lower_bound(data);
      if (next != held.end()) {
        ASSERT_LE(data + bytes, next->first);
      }
      if (next != held.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second.bytes, data);
      }
      const char fill = static_cast<char>(random.next());
      std::memset(data, fill, bytes);
      held[data] = {bytes, fill};
      used += ValueArea::charge_of(bytes);
    }
    ASSERT_FALSE(held.empty());
    for (const auto& [data, value] : held) ASSERT_NE(resident_pages(data, value.bytes), 0U);
    area.reset();
    for (const auto& [data, value] : held) ASSERT_EQ(resident_pages(data, value.bytes), 0U);
    held.clear();
    used = 0;
  }
}

// Three values, of which the second one begins and ends within pages of 64 KiB.
TEST(ValueArea, APageThatIsLargerThanAUnitReturnsAsAWhole) {
  constexpr std::size_t page = 64 * 1024;
  constexpr std::array<std::size_t, 3> sizes = {page / 2, 2 * page, page / 2};
  ValueArea area(std::size_t{32} << 20, page);
  std::array<char*, 3> values{};
  for (std::size_t i = 0; i < 3; ++i) {
    values[i] = area.take_cold(sizes[i]);
    std::memset(values[i], 'v', sizes[i]);
  }
  const auto cool = [&](std::size_t i) {
    area.free(values[i], sizes[i]);
    area.cool(area.warm_bytes());
  };
  cool(1);
  EXPECT_EQ(resident_pages(values[1], sizes[1]), page / ValueArea::unit_bytes) << "the page in between has returned";
  EXPECT_EQ(std::string_view(values[0], sizes[0]), std::string(sizes[0], 'v'));
  EXPECT_EQ(std::string_view(values[2], sizes[2]), std::string(sizes[2], 'v'));
  cool(0);
  EXPECT_EQ(resident_pages(values[0], page), 0U) << "the page of the two";
  EXPECT_EQ(std::string_view(values[2], sizes[2]), std::string(sizes[2], 'v'));
  cool(2);
  EXPECT_EQ(resident_pages(values[0], 3 * page), 0U);
}

}  // namespace
}  // namespace hawser::kv
