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

TEST(ShmSizes, RingsAreMappedWithPagesOfEachSize) {
  for (const std::size_t page : {4096U, 16'384U, 65'536U}) {
    if (page % system_page_bytes() != 0) continue;
    const Sizes sizes{.ring = ring_bytes_min, .slab = 1 << 20, .page = page};
    for (const std::size_t side : {server_side, client_side}) EXPECT_EQ(sizes.ring_at(side) % page, 0U) << page;
    const auto memory = SharedMemory::create(sizes, false);
    ASSERT_TRUE(memory.has_value()) << page << ": " << memory.error().text;
    std::byte* const ring = (*memory)->ring(client_side);
    ring[0] = std::byte{1};
    EXPECT_EQ(ring[sizes.ring], std::byte{1}) << "mapped twice";
  }
}

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

TEST(ShmSlab, ARegionThatWasReturnedIsUsedAgainAfter2MiBOfOthers) {
  struct Case {
    std::size_t bytes;
    std::size_t chunks;
    std::size_t places;
  };
  // The last one does not fill its chunks of 64 KiB and reaches the end of the part that is used in turn.
  for (const Case& one : {Case{128 * 1024, 2, 16}, Case{64 * 1024, 1, 32}, Case{24 * 1024, 1, 64}}) {
    Slab slab(16 << 20);
    for (std::size_t i = 0; i < 3 * one.places; ++i) {
      const std::size_t region = slab.writer.acquire(one.bytes);
      ASSERT_EQ(region, i % one.places * one.chunks) << i << " of " << one.bytes << " bytes";
      slab.reader->release(region);
    }
    slab.reader->drop();
  }
}

TEST(ShmSlab, TheRestIsUsedOnlyWhileTheRotationHasNoRoom) {
  Slab slab(16 << 20);
  const std::size_t chunk = 64 * 1024;
  const std::size_t rotation = SlabWriter::rotation_span_bytes / chunk;
  for (std::size_t i = 0; i < rotation; ++i) EXPECT_EQ(slab.writer.acquire(chunk), i);
  EXPECT_EQ(slab.writer.acquire(chunk), rotation) << "the first one behind the rotation";
  slab.reader->release(5);
  EXPECT_EQ(slab.writer.acquire(chunk), 5U);
  EXPECT_EQ(slab.writer.acquire(SlabWriter::rotation_span_bytes + 1), rotation + 1) << "longer than the rotation";
  for (std::size_t i = 0; i < rotation; ++i) slab.reader->release(i);
  for (std::size_t i = 0; i < 4 * rotation; ++i) {
    const std::size_t region = slab.writer.acquire(chunk);
    EXPECT_LT(region, rotation);
    slab.reader->release(region);
  }
  slab.reader->drop();
}

TEST(ShmSlab, TheRotationOfLargeChunksHasSeveralPlaces) {
  Slab slab(1 << 30);
  for (std::size_t i = 0; i < 2 * SlabWriter::rotation_chunks_min; ++i) {
    const std::size_t region = slab.writer.acquire(100'000);
    EXPECT_EQ(region, i % SlabWriter::rotation_chunks_min);
    slab.reader->release(region);
  }
  Slab small(64 * 1024);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(small.writer.acquire(1), i % 4);
    small.reader->release(i % 4);
  }
  slab.reader->drop();
  small.reader->drop();
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
