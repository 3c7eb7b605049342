// Overlapping reads and writes of several threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "block/store/memory_file.h"
#include "block/store/stored_volume.h"
#include "block/store/test/forwarding_file.h"

namespace hawser::block {
namespace {

// A file in memory some of whose accesses let other threads run before or after them. Not all: beside other programs,
// each yield costs a turn of all of them.
class YieldingFile final : public ForwardingFile {
 public:
  Result<void> read(std::uint64_t offset, MutableBytes into) override {
    const Yield yield;
    return ForwardingFile::read(offset, into);
  }
  Result<void> write(std::uint64_t offset, Bytes bytes) override {
    const Yield yield;
    return ForwardingFile::write(offset, bytes);
  }

 private:
  struct Yield {
    Yield() { some_yield(); }
    Yield(const Yield&) = delete;
    Yield& operator=(const Yield&) = delete;
    ~Yield() { some_yield(); }
  };
  static void some_yield() {
    static std::atomic<unsigned> count = 0;
    if (count++ % 7 == 0) std::this_thread::yield();
  }
};

std::unique_ptr<StoredVolume> volume_in_memory(std::uint64_t size) {
  VolumeFiles files{std::make_unique<YieldingFile>(), std::make_unique<YieldingFile>()};
  EXPECT_TRUE(StoredVolume::format(files, size, Uuid{}, false));
  Result<std::unique_ptr<StoredVolume>> opened =
      StoredVolume::open("v", std::move(files), {.marked_regions_max = 1, .flushes_per_clear = 1});
  EXPECT_TRUE(opened);
  return std::move(*opened);
}

// One access of a block: its value is the one that was written, or read.
struct Access {
  std::uint64_t begin;
  std::uint64_t end;
  std::uint64_t value;
  bool write;
};

// A register with unique values is linearizable if the zones of its values fit (Gibbons and Korach, 1997, section 4).
bool is_linearizable(const std::vector<Access>& accesses) {
  struct Zone {
    std::uint64_t first_end = UINT64_MAX;
    std::uint64_t last_begin = 0;
    std::uint64_t written = 0;
    bool forward() const { return first_end < last_begin; }
    std::uint64_t low() const { return std::min(first_end, last_begin); }
    std::uint64_t high() const { return std::max(first_end, last_begin); }
  };
  std::map<std::uint64_t, Zone> zones;
  for (const Access& access : accesses) {
    Zone& zone = zones[access.value];
    zone.first_end = std::min(zone.first_end, access.end);
    zone.last_begin = std::max(zone.last_begin, access.begin);
    if (access.write) zone.written = access.begin;
  }
  for (const Access& access : accesses) {
    if (!access.write && access.end < zones[access.value].written) return false;
  }
  for (const auto& [value, zone] : zones) {
    if (!zone.forward()) continue;
    for (const auto& [other_value, other] : zones) {
      if (value == other_value) continue;
      const bool inside = zone.low() < other.low() && other.high() < zone.high();
      const bool overlap = other.forward() && zone.low() < other.high() && other.low() < zone.high();
      if (overlap || inside) return false;
    }
  }
  return true;
}

TEST(BlockVolumeThreads, TheCheckerFindsAStaleRead) {
  EXPECT_TRUE(is_linearizable({{1, 2, 0, true}, {3, 6, 1, true}, {4, 5, 0, false}, {7, 8, 1, false}}));
  EXPECT_FALSE(is_linearizable({{1, 2, 0, true}, {3, 4, 1, true}, {5, 6, 0, false}}));
}

TEST(BlockVolumeThreads, OverlappingRequestsAreLinearizableForEachBlock) {
  constexpr std::uint64_t blocks = 4;
  const std::unique_ptr<StoredVolume> volume = volume_in_memory(2 * region_bytes);
  // The blocks lie in two regions.
  const std::uint64_t base = region_bytes - 2 * block_bytes;
  std::atomic<std::uint64_t> clock = 1;
  std::atomic<std::uint64_t> values = 1;
  std::atomic<bool> failed = false;
  std::vector<std::array<std::vector<Access>, blocks>> histories(4);
  const auto work = [&](std::size_t thread) {
    std::mt19937_64 random(thread);
    std::vector<std::byte> memory(blocks * block_bytes);
    for (int i = 0; i < 400; ++i) {
      const std::uint64_t first = random() % blocks;
      const std::uint64_t count = 1 + random() % (blocks - first);
      const bool write = random() % 2 == 0;
      const MutableBytes bytes = MutableBytes(memory).first(count * block_bytes);
      std::vector<std::uint64_t> value(count);
      if (write) {
        for (std::uint64_t block = 0; block < count; ++block) {
          value[block] = values++;
          for (std::uint64_t at = 0; at < block_bytes; at += 8) {
            std::memcpy(bytes.data() + block * block_bytes + at, &value[block], 8);
          }
        }
      }
      const std::uint64_t begin = clock++;
      const std::uint64_t offset = base + first * block_bytes;
      std::optional<Result<void>> done;
      if (write) {
        const bool fua = random() % 16 == 0;
        if (random() % 2 == 0) done = volume->try_write(offset, bytes, fua);
        if (!done) done = volume->write(offset, bytes, fua);
      } else if (random() % 2 == 0) {
        done = volume->try_read(offset, bytes);
      }
      if (!done) done = volume->read(offset, bytes);
      const std::uint64_t end = clock++;
      if (!*done) failed = true;
      for (std::uint64_t block = 0; block < count; ++block) {
        const Bytes part = Bytes(bytes).subspan(block * block_bytes, block_bytes);
        if (!write) std::memcpy(&value[block], part.data(), 8);
        // A block is read whole.
        if (std::memcmp(part.data(), part.data() + 8, block_bytes - 8) != 0) failed = true;
        histories[thread][first + block].push_back({begin, end, value[block], write});
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < histories.size(); ++thread) threads.emplace_back(work, thread);
  }
  EXPECT_FALSE(failed);
  for (std::uint64_t block = 0; block < blocks; ++block) {
    std::vector<Access> accesses = {{0, 0, 0, true}};
    for (const auto& history : histories) {
      accesses.insert(accesses.end(), history[block].begin(), history[block].end());
    }
    EXPECT_TRUE(is_linearizable(accesses)) << "block " << block;
  }
}

// Parts of one block that several threads write: no thread removes the bytes of another.
TEST(BlockVolumeThreads, PartsOfABlockAreNotLost) {
  constexpr std::size_t part_bytes = 1000;
  const std::unique_ptr<StoredVolume> volume = volume_in_memory(region_bytes);
  std::atomic<bool> failed = false;
  {
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        std::vector<std::byte> mine(part_bytes);
        std::vector<std::byte> found(part_bytes);
        for (int i = 1; i <= 200; ++i) {
          std::ranges::fill(mine, static_cast<std::byte>(i));
          if (!volume->write(100 + thread * part_bytes, mine)) failed = true;
          if (!volume->read(100 + thread * part_bytes, found) || found != mine) failed = true;
        }
      });
    }
  }
  EXPECT_FALSE(failed);
}

// A write during a flush may not be durable when the flush ends, so that its region keeps its mark.
TEST(BlockVolumeThreads, AWriteDuringAFlushKeepsItsMark) {
  MemoryFile side;
  RegionMarks marks(side, Checksummer(Uuid{}));
  ASSERT_TRUE(marks.load(4 * region_bytes));
  ASSERT_TRUE(marks.begin_write(0, 3));
  marks.end_write(0, 2, false);
  const std::uint64_t flush = marks.begin_flush();
  ASSERT_TRUE(marks.begin_write(1, 2));
  marks.end_write(1, 2, false);
  marks.clear(flush, true);
  EXPECT_EQ(marks.marked(), 2U);  // Region 1, and region 2, whose write has not ended.
  RegionMarks later(side, Checksummer(Uuid{}));
  EXPECT_EQ(later.load(4 * region_bytes).value_or(std::vector<std::uint64_t>{}), (std::vector<std::uint64_t>{1, 2}));
  marks.end_write(2, 3, false);
  marks.clear(marks.begin_flush(), true);
  EXPECT_EQ(marks.marked(), 0U);
}

// A file one of whose writes or syncs waits.
class HeldFile final : public ForwardingFile {
 public:
  struct Gate {
    std::atomic<bool> closed = false;     // The next write waits.
    std::atomic<bool> held_sync = false;  // The next sync waits.
    std::binary_semaphore entered = std::binary_semaphore(0);
    std::binary_semaphore opened = std::binary_semaphore(0);
  };
  explicit HeldFile(Gate& gate) : gate_(gate) {}
  Result<void> write(std::uint64_t offset, Bytes bytes) override {
    wait_if(gate_.closed);
    return ForwardingFile::write(offset, bytes);
  }
  Result<void> sync() override {
    wait_if(gate_.held_sync);
    return ForwardingFile::sync();
  }

 private:
  void wait_if(std::atomic<bool>& held) {
    if (!held.exchange(false)) return;
    gate_.entered.release();
    gate_.opened.acquire();
  }

  Gate& gate_;
};

TEST(BlockVolumeThreads, ARequestThatMustNotWaitDoesNothingDuringAWriteOfItsBlocks) {
  HeldFile::Gate gate;
  VolumeFiles files{std::make_unique<HeldFile>(gate), std::make_unique<MemoryFile>()};
  ASSERT_TRUE(StoredVolume::format(files, region_bytes, Uuid{}, false));
  const Result<std::unique_ptr<StoredVolume>> volume = StoredVolume::open("v", std::move(files), {});
  ASSERT_TRUE(volume);
  const std::vector<std::byte> bytes(block_bytes, std::byte{1});
  std::vector<std::byte> found(block_bytes, std::byte{2});
  gate.closed = true;
  std::jthread writer([&] { EXPECT_TRUE((*volume)->write(block_bytes, bytes)); });
  gate.entered.acquire();
  EXPECT_FALSE((*volume)->try_read(block_bytes + 100, found)) << "a part of the block";
  EXPECT_EQ(found, std::vector<std::byte>(block_bytes, std::byte{2}));
  const std::optional<Result<void>> other = (*volume)->try_read(0, found);
  EXPECT_TRUE(other && *other);
  EXPECT_EQ(found, std::vector<std::byte>(block_bytes));
  const std::vector<std::byte> newer(block_bytes, std::byte{3});
  EXPECT_FALSE((*volume)->try_write(block_bytes - 1, newer)) << "a part of the block";
  const std::optional<Result<void>> beside = (*volume)->try_write(2 * block_bytes, newer, true);
  EXPECT_TRUE(beside && *beside);
  const std::optional<Result<void>> flushed = (*volume)->try_flush();
  EXPECT_TRUE(flushed && *flushed) << "it covers the writes that have ended";
  gate.opened.release();
  writer.join();
  const std::optional<Result<void>> later = (*volume)->try_read(block_bytes, found);
  EXPECT_TRUE(later && *later);
  EXPECT_EQ(found, bytes);
  const std::optional<Result<void>> before = (*volume)->try_read(0, found);
  EXPECT_TRUE(before && *before);
  EXPECT_EQ(found, std::vector<std::byte>(block_bytes)) << "a write that was refused has changed nothing";
  const std::optional<Result<void>> written = (*volume)->try_write(block_bytes - 1, newer);
  EXPECT_TRUE(written && *written);
  EXPECT_TRUE((*volume)->close()) << "a request that was refused holds nothing";
  const std::optional<Result<void>> closed = (*volume)->try_read(0, found);
  EXPECT_TRUE(closed && !*closed);
  const std::optional<Result<void>> not_written = (*volume)->try_write(0, newer);
  EXPECT_TRUE(not_written && !*not_written);
}

// While another thread has all of the volume.
TEST(BlockVolumeThreads, ARequestThatMustNotWaitDoesNothingDuringAClose) {
  HeldFile::Gate gate;
  VolumeFiles files{std::make_unique<HeldFile>(gate), std::make_unique<MemoryFile>()};
  ASSERT_TRUE(StoredVolume::format(files, region_bytes, Uuid{}, false));
  const Result<std::unique_ptr<StoredVolume>> volume = StoredVolume::open("v", std::move(files), {});
  ASSERT_TRUE(volume);
  std::vector<std::byte> bytes(block_bytes, std::byte{1});
  gate.held_sync = true;
  std::jthread closer([&] { EXPECT_TRUE((*volume)->close()); });
  gate.entered.acquire();
  EXPECT_FALSE((*volume)->try_write(0, bytes));
  EXPECT_FALSE((*volume)->try_read(0, bytes));
  EXPECT_FALSE((*volume)->try_flush());
  gate.opened.release();
}

// The marks are durable and their checksums have space, so that nothing is written to the side file.
TEST(BlockVolumeThreads, AWriteOfAMarkedRegionBeginsAtOnce) {
  MemoryFile side;
  RegionMarks marks(side, Checksummer(Uuid{}));
  ASSERT_TRUE(marks.load(4 * region_bytes));
  EXPECT_FALSE(marks.try_begin_write(0, 1, false)) << "it has no mark";
  ASSERT_TRUE(marks.begin_write(0, 2));
  EXPECT_FALSE(marks.try_begin_write(0, 1, true)) << "it has no space";
  marks.set_reserved(0, 2, true);
  EXPECT_TRUE(marks.try_begin_write(0, 2, true));
  EXPECT_FALSE(marks.try_begin_write(0, 3, false)) << "one of them has no mark";
  marks.end_write(0, 2, false);
  marks.clear(marks.begin_flush(), true);
  EXPECT_EQ(marks.marked(), 2U) << "one of two writes has not ended";
  marks.end_write(0, 2, false);
  marks.clear(marks.begin_flush(), true);
  EXPECT_EQ(marks.marked(), 0U) << "a refused write has left nothing";
}

TEST(BlockVolumeThreads, ACloseWaitsForRequestsAndEndsLaterOnes) {
  const std::unique_ptr<StoredVolume> volume = volume_in_memory(region_bytes);
  std::vector<std::jthread> threads;
  std::atomic<int> ended = 0;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] {
      const std::vector<std::byte> bytes(block_bytes, std::byte{1});
      for (;;) {
        const Result<void> written = volume->write(0, bytes);
        if (written) continue;
        EXPECT_EQ(written.error().application_code, ENODEV);
        ++ended;
        return;
      }
    });
  }
  EXPECT_TRUE(volume->close());
  threads.clear();
  EXPECT_EQ(ended, 3);
}

}  // namespace
}  // namespace hawser::block
