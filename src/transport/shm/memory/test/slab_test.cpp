#include "transport/shm/memory/slab.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "base/random.h"

namespace hawser::transport::shm {
namespace {

struct Slab {
  explicit Slab(std::size_t bytes) : memory(*SharedMemory::create({ring_bytes_min, bytes}, false)) {}
  std::shared_ptr<SharedMemory> memory;
  SlabWriter writer{*memory, server_side};
  SlabReader* reader = SlabReader::create(memory, server_side);
};

TEST(ShmSlab, GivesOutAllOfItAndNoMore) {
  Slab slab(1 << 20);
  std::vector<std::size_t> regions;
  for (int i = 0; i < 64; ++i) regions.push_back(slab.writer.acquire(16 * 1024));
  EXPECT_EQ(regions.back(), 63U);
  EXPECT_EQ(slab.writer.acquire(1), SlabWriter::none);
  slab.reader->release(7);
  slab.reader->release(9);
  EXPECT_EQ(slab.writer.acquire(16 * 1024 + 1), SlabWriter::none) << "two that are not neighbours";
  slab.reader->release(8);
  EXPECT_EQ(slab.writer.acquire(3 * 16 * 1024), 7U);
  EXPECT_EQ(slab.writer.acquire(1), SlabWriter::none);
  slab.reader->drop();
}

TEST(ShmSlab, TooMuchIsNone) {
  Slab slab(1 << 20);
  EXPECT_EQ(slab.writer.acquire((1 << 20) + 1), SlabWriter::none);
  EXPECT_EQ(slab.writer.acquire(1 << 20), 0U);
  Slab none(0);
  EXPECT_EQ(none.writer.acquire(1), SlabWriter::none);
  EXPECT_EQ(none.reader->find(0, 1), nullptr);
  slab.reader->drop();
  none.reader->drop();
}

TEST(ShmSlab, ALargeSlabHasLargerChunks) {
  Slab slab(16 << 20);
  EXPECT_EQ(slab.writer.acquire(1), 0U);
  EXPECT_EQ(slab.writer.acquire(64 * 1024 + 1), 1U);
  EXPECT_EQ(slab.writer.acquire(1), 3U);
  EXPECT_EQ(slab.writer.at(3) - slab.writer.at(0), 3 * 64 * 1024);
  EXPECT_NE(slab.reader->find(255, 64 * 1024), nullptr);
  EXPECT_EQ(slab.reader->find(255, 64 * 1024 + 1), nullptr);
  slab.reader->drop();
}

// Regions never overlap, any thread may return them, and they outlive their connection.
TEST(ShmSlab, RandomUse) {
  Random random(1);
  auto slab = std::make_unique<Slab>(4 << 20);
  std::map<std::size_t, std::pair<std::size_t, Block*>> loaned;
  std::size_t none = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random.chance(0.5)) {
      const std::size_t bytes = 1 + random.below(random.chance(0.1) ? 2 << 20 : 100'000);
      const std::size_t region = slab->writer.acquire(bytes);
      if (region == SlabWriter::none) {
        ++none;
        continue;
      }
      ASSERT_NE(slab->reader->find(region, bytes), nullptr);
      const auto next = loaned.lower_bound(region);
      if (next != loaned.end()) {
        ASSERT_LE(region * chunk_bytes_min + bytes, next->first * chunk_bytes_min);
      }
      if (next != loaned.begin()) {
        const auto& before = *std::prev(next);
        ASSERT_LE(before.first * chunk_bytes_min + before.second.first, region * chunk_bytes_min);
      }
      loaned[region] = {bytes, slab->reader->loan(region)};
      EXPECT_EQ(slab->reader->find(region, bytes), nullptr) << "it is in use";
    } else if (!loaned.empty()) {
      auto one = loaned.begin();
      std::advance(one, static_cast<std::ptrdiff_t>(random.below(loaned.size())));
      Block* const block = one->second.second;
      loaned.erase(one);
      if (random.chance(0.01)) {
        std::thread([&] { block->release(); }).join();
      } else {
        block->release();
      }
    }
  }
  EXPECT_GT(none, 0U);
  slab->reader->drop();
  slab->memory.reset();
  for (const auto& [region, one] : loaned) one.second->release();
}

}  // namespace
}  // namespace hawser::transport::shm
