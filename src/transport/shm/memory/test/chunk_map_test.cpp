#include "transport/shm/memory/chunk_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace hawser::transport::shm {
namespace {

// One chunk after the other.
struct PlainMap {
  std::vector<bool> used = std::vector<bool>(chunks_max);

  bool is_free(std::size_t first, std::size_t wanted) const {
    for (std::size_t i = first; i < first + wanted; ++i) {
      if (used[i]) return false;
    }
    return true;
  }
  std::size_t find_lowest(std::size_t first, std::size_t last, std::size_t wanted) const {
    for (; first + wanted <= last; ++first) {
      if (is_free(first, wanted)) return first;
    }
    return ChunkMap::none;
  }
  std::size_t find_highest(std::size_t last, std::size_t wanted) const {
    for (; last >= wanted; --last) {
      if (is_free(last - wanted, wanted)) return last - wanted;
    }
    return ChunkMap::none;
  }
};

TEST(ChunkMap, FindsWhatASearchChunkByChunkFinds) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    ChunkMap map;
    PlainMap plain;
    const std::size_t longest = seed % 2 == 0 ? 8 : chunks_max;
    for (int step = 0; step < 500; ++step) {
      const std::size_t first = random.below(chunks_max);
      const std::size_t count = 1 + random.below(std::min(longest, chunks_max - first));
      const bool uses = random.below(100) < 30 + seed;
      if (uses) {
        map.use(first, count);
      } else {
        map.free(first, count);
      }
      for (std::size_t i = first; i < first + count; ++i) plain.used[i] = uses;
      const std::size_t last = random.below(chunks_max + 1);
      const std::size_t wanted = 1 + random.below(random.chance(0.5) ? 4 : chunks_max);
      EXPECT_EQ(map.find_lowest(first, last, wanted), plain.find_lowest(first, last, wanted)) << seed << " " << step;
      EXPECT_EQ(map.find_highest(last, wanted), plain.find_highest(last, wanted)) << seed << " " << step;
    }
  }
}

TEST(ChunkMap, AWholeMapIsOneRegion) {
  ChunkMap map;
  EXPECT_EQ(map.find_lowest(0, chunks_max, chunks_max), 0U);
  EXPECT_EQ(map.find_highest(chunks_max, chunks_max), 0U);
  EXPECT_EQ(map.find_lowest(0, chunks_max, chunks_max + 1), ChunkMap::none);
  EXPECT_EQ(map.find_highest(chunks_max, chunks_max + 1), ChunkMap::none);
  map.use(0, chunks_max);
  EXPECT_EQ(map.find_lowest(0, chunks_max, 1), ChunkMap::none);
  EXPECT_EQ(map.find_highest(chunks_max, 1), ChunkMap::none);
  map.free(chunks_max - 1, 1);
  EXPECT_EQ(map.find_lowest(0, chunks_max, 1), chunks_max - 1);
  EXPECT_EQ(map.find_highest(chunks_max, 1), chunks_max - 1);
}

}  // namespace
}  // namespace hawser::transport::shm
