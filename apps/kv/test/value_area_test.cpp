#include "kv/engine/value_area.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <iterator>
#include <map>
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

}  // namespace
}  // namespace hawser::kv
