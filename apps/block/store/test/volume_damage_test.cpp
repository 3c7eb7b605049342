// Damage of the files of a volume is found and reported, and damaged bytes are not returned.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "block/store/damage_list.h"
#include "block/store/stored_volume.h"
#include "block/store/test/simulated_disk.h"

namespace hawser::block {
namespace {

constexpr std::uint64_t damaged_size = 2 * region_bytes;

// A volume whose blocks from the first to the last but 16 have random bytes.
class DamagedVolume : public ::testing::Test {
 protected:
  void SetUp() override {
    VolumeFiles files{disk_.open(0), disk_.open(1)};
    ASSERT_TRUE(StoredVolume::format(files, damaged_size, Uuid{std::byte{7}}, false));
    open();
    contents_.resize(damaged_size);
    for (std::size_t i = 0; i < damaged_size - 16 * block_bytes; ++i) contents_[i] = static_cast<std::byte>(random_());
    ASSERT_TRUE(volume_->write(0, contents_));
    ASSERT_TRUE(volume_->close());
  }
  void open() {
    volume_.reset();
    Result<std::unique_ptr<StoredVolume>> opened = StoredVolume::open("v", {disk_.open(0), disk_.open(1)}, {});
    ASSERT_TRUE(opened) << opened.error().text;
    volume_ = std::move(*opened);
  }
  // Reads every block: those of `damaged` are errors, and no other one.
  void expect_damaged(const std::set<std::uint64_t>& damaged) {
    std::vector<std::byte> memory(block_bytes);
    const std::uint64_t before = volume_->info()->mismatches;
    for (std::uint64_t block = 0; block < damaged_size / block_bytes; ++block) {
      const Result<void> read = volume_->read(block * block_bytes, memory);
      ASSERT_EQ(!read, damaged.contains(block)) << block;
      if (read) {
        ASSERT_TRUE(std::ranges::equal(memory, std::span(contents_).subspan(block * block_bytes, block_bytes)));
      } else {
        EXPECT_EQ(read.error().application_code, EIO);
        EXPECT_NE(read.error().text.find("block " + std::to_string(block) + " of volume v is damaged"),
                  std::string::npos)
            << read.error().text;
      }
    }
    const Result<ScrubReport> report = volume_->scrub(0, damaged_size);
    ASSERT_TRUE(report);
    ASSERT_EQ(report->damaged, damaged.size());
    std::set<std::uint64_t> listed;
    for (const DamagedBlock& block : report->listed) {
      listed.insert(block.block);
      EXPECT_NE(block.checksum, block.expected);
    }
    EXPECT_EQ(listed, damaged);
    EXPECT_EQ(volume_->info()->mismatches - before, damaged.size());
  }

  std::mt19937_64 random_{3};
  SimulatedDisk disk_{1};
  std::unique_ptr<StoredVolume> volume_;
  std::vector<std::byte> contents_;
};

TEST_F(DamagedVolume, BitRotAtRandomPlacesIsFound) {
  std::set<std::uint64_t> damaged;
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t place = random_() % (damaged_size - 16 * block_bytes);
    if (damaged.insert(place / block_bytes).second) disk_.bytes(0)[place] ^= std::byte{1} << (random_() % 8);
  }
  open();
  expect_damaged(damaged);
}

TEST_F(DamagedVolume, RotOfChecksumsIsFound) {
  std::set<std::uint64_t> damaged;
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t block = random_() % (damaged_size / block_bytes - 16);
    if (damaged.insert(block).second) {
      disk_.bytes(1)[entry_offset(block) + random_() % 4] ^= std::byte{1} << (random_() % 8);
    }
  }
  open();
  expect_damaged(damaged);
}

// A disk wrote to a wrong place: the bytes of another block with their right checksum, and a write that was lost.
TEST_F(DamagedVolume, MisdirectedWritesAreFound) {
  std::copy_n(disk_.bytes(0).begin() + 5 * block_bytes, block_bytes, disk_.bytes(0).begin() + 9 * block_bytes);
  std::copy_n(disk_.bytes(1).begin() + entry_offset(5), 4, disk_.bytes(1).begin() + entry_offset(9));
  open();
  const std::vector<std::byte> before(disk_.bytes(0).begin() + 20 * block_bytes,
                                      disk_.bytes(0).begin() + 21 * block_bytes);
  ASSERT_TRUE(volume_->write(20 * block_bytes, Bytes(contents_).subspan(30 * block_bytes, block_bytes)));
  std::ranges::copy(before, disk_.bytes(0).begin() + 20 * block_bytes);
  expect_damaged({9, 20});
}

TEST_F(DamagedVolume, DamageOfBlocksThatWereNeverWrittenIsFound) {
  const std::uint64_t block = damaged_size / block_bytes - 3;
  disk_.bytes(0)[block * block_bytes + 77] = std::byte{1};
  open();
  std::vector<std::byte> memory(block_bytes, std::byte{9});
  EXPECT_EQ(volume_->read(block * block_bytes, memory).error().application_code, EIO);
  EXPECT_EQ(volume_->scrub(0, damaged_size)->damaged, 1U);
}

// The entry of a block without data is 0, and so is one that the disk has lost.
TEST_F(DamagedVolume, ALostChecksumDoesNotMakeZeros) {
  constexpr std::uint64_t table = std::uint64_t{4} << 20;  // docs/block.md, "Files".
  std::fill_n(disk_.bytes(1).begin() + static_cast<std::ptrdiff_t>(table + 4 * 4), 4, std::byte{});
  open();
  std::vector<std::byte> memory(block_bytes, std::byte{9});
  EXPECT_EQ(volume_->read(4 * block_bytes, memory).error().application_code, EIO);
  EXPECT_EQ(volume_->write(4 * block_bytes + 8, Bytes(contents_).first(100)).error().application_code, EIO);
  expect_damaged({4});
}

TEST_F(DamagedVolume, APartOfADamagedBlockIsNotWrittenAndAllOfItIs) {
  disk_.bytes(0)[4 * block_bytes] ^= std::byte{1};
  open();
  const Bytes given = Bytes(contents_).subspan(4 * block_bytes, block_bytes);
  EXPECT_EQ(volume_->write(4 * block_bytes + 8, given.subspan(8, 100)).error().application_code, EIO);
  expect_damaged({4});
  ASSERT_TRUE(volume_->write(4 * block_bytes, given));
  EXPECT_EQ(volume_->scrub(0, damaged_size)->damaged, 0U);
}

// The crash leaves the region of the block marked.
TEST_F(DamagedVolume, KnownDamageStaysAfterACrash) {
  disk_.bytes(0)[4 * block_bytes + 9] ^= std::byte{1};
  disk_.bytes(0)[70 * block_bytes + 9] ^= std::byte{1};
  open();
  std::vector<std::byte> memory(block_bytes);
  ASSERT_FALSE(volume_->read(4 * block_bytes, memory));
  ASSERT_TRUE(volume_->scrub(64 * block_bytes, 64 * block_bytes));
  EXPECT_EQ(volume_->info()->known_damaged, 2U);
  for (int start = 0; start < 3; ++start) {
    ASSERT_TRUE(volume_->write(9 * block_bytes, Bytes(contents_).subspan(9 * block_bytes, block_bytes)));
    open();
    EXPECT_GT(volume_->info()->recovered_blocks, 0U);
    expect_damaged({4, 70});
  }
  ASSERT_TRUE(volume_->write(4 * block_bytes, Bytes(contents_).subspan(4 * block_bytes, block_bytes)));
  open();
  expect_damaged({70});
  EXPECT_EQ(volume_->info()->known_damaged, 1U);
  ASSERT_TRUE(volume_->discard(70 * block_bytes, block_bytes));
  std::fill_n(contents_.begin() + 70 * block_bytes, block_bytes, std::byte{});
  open();
  expect_damaged({});
  EXPECT_EQ(volume_->info()->known_damaged, 0U);
}

// A bad cable made a wrong read once. The power is cut during a later write of the block: it is old or new.
TEST_F(DamagedVolume, ABlockThatHasItsBytesAgainIsWrittenAsOthers) {
  for (const bool discarded : {false, true}) {
    disk_.bytes(0)[4 * block_bytes + 9] ^= std::byte{1};
    open();
    std::vector<std::byte> memory(block_bytes);
    ASSERT_FALSE(volume_->read(4 * block_bytes, memory));
    disk_.bytes(0)[4 * block_bytes + 9] ^= std::byte{1};
    ASSERT_TRUE(volume_->write(9 * block_bytes, Bytes(contents_).subspan(9 * block_bytes, block_bytes)));
    // Each operation is the last one in turn, until the request succeeds.
    for (std::uint64_t operation = 1;; ++operation) {
      SCOPED_TRACE(operation);
      disk_.fail_at(disk_.operations() + operation, EIO, true);
      const Result<void> changed =
          discarded ? volume_->discard(4 * block_bytes, block_bytes)
                    : volume_->write(4 * block_bytes + 8, Bytes(contents_).subspan(10 * block_bytes, 2000));
      disk_.fail_never();
      open();
      EXPECT_TRUE(volume_->read(4 * block_bytes, memory));
      if (changed) break;
    }
    std::ranges::copy(memory, contents_.begin() + 4 * block_bytes);
    expect_damaged({});
  }
}

// Damage that cannot be noted ends the writes, and the marks of its region, so that a crash does not hide it.
TEST_F(DamagedVolume, DamageThatCannotBeNotedStaysAfterACrash) {
  disk_.bytes(0)[4 * block_bytes + 9] ^= std::byte{1};
  open();
  const Bytes given = Bytes(contents_).subspan(9 * block_bytes, block_bytes);
  ASSERT_TRUE(volume_->write(9 * block_bytes, given));
  std::vector<std::byte> memory(block_bytes);
  disk_.fail_at(disk_.operations() + 3, ENOSPC, false);  // After the reads of the checksum and of the data.
  EXPECT_EQ(volume_->read(4 * block_bytes, memory).error().application_code, EIO);
  EXPECT_TRUE(disk_.failed());
  EXPECT_EQ(volume_->write(9 * block_bytes, given).error().application_code, EIO);
  open();
  expect_damaged({4});
}

TEST_F(DamagedVolume, AFullListOfDamageMakesTheVolumeReadOnly) {
  std::vector<std::uint64_t> blocks(damage_blocks_max);
  std::iota(blocks.begin(), blocks.end(), 1000);
  const std::unique_ptr<File> side = disk_.open(1);
  DamageList list(*side, Checksummer(Uuid{std::byte{7}}));
  ASSERT_TRUE(list.load());
  ASSERT_TRUE(list.add(blocks));
  const Result<void> added = list.add(std::array<std::uint64_t, 1>{7});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().application_code, EIO);
  open();
  EXPECT_TRUE(volume_->info()->read_only);
  EXPECT_NE(volume_->info()->warning.find("64512 blocks are damaged"), std::string::npos) << volume_->info()->warning;
  EXPECT_EQ(volume_->write(0, Bytes(contents_).first(1)).error().application_code, EROFS);
  expect_damaged({});
  ASSERT_TRUE(list.remove(1000, 2000));
  open();
  EXPECT_FALSE(volume_->info()->read_only);
  EXPECT_EQ(volume_->info()->known_damaged, damage_blocks_max - 1000);
  ASSERT_TRUE(list.add(std::array<std::uint64_t, 2>{3, 4}));
  DamageList later(*side, Checksummer(Uuid{std::byte{7}}));
  ASSERT_TRUE(later.load());
  EXPECT_TRUE(later.contains(4, 5));
  EXPECT_FALSE(later.contains(5, 2000));
  EXPECT_EQ(later.size(), damage_blocks_max - 998);
}

TEST_F(DamagedVolume, ADamagedListOfDamageIsReported) {
  disk_.bytes(0)[4 * block_bytes + 9] ^= std::byte{1};
  open();
  std::vector<std::byte> memory(block_bytes);
  ASSERT_FALSE(volume_->read(4 * block_bytes, memory));
  EXPECT_EQ(volume_->info()->warning, "");
  disk_.bytes(1)[damage_offset] ^= std::byte{1};
  open();
  EXPECT_NE(volume_->info()->warning.find("damaged sectors of the list of damaged blocks in its side file: 1;"),
            std::string::npos)
      << volume_->info()->warning;
  expect_damaged({4});
}

TEST_F(DamagedVolume, ADamagedSuperblockHasACopy) {
  ASSERT_TRUE((open(), volume_->resize(region_bytes)));
  ASSERT_TRUE(volume_->close());
  for (const std::uint64_t slot : {0U, 1U}) {
    disk_.bytes(1)[slot * superblock_bytes + 17] ^= std::byte{4};
    open();
    EXPECT_EQ(volume_->size(), region_bytes);
  }
  disk_.bytes(1)[17] ^= std::byte{4};
  disk_.bytes(1)[superblock_bytes + 17] ^= std::byte{4};
  const auto opened = StoredVolume::open("v", {disk_.open(0), disk_.open(1)}, {});
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().text.find("no valid superblock"), std::string::npos) << opened.error().text;
}

// Without its marks, the region that was written before the crash is verified as it is: nothing wrong is returned.
TEST_F(DamagedVolume, DamagedMarksHideNoDamage) {
  open();
  std::vector<std::byte> given(block_bytes, std::byte{1});
  ASSERT_TRUE(volume_->write(3 * block_bytes, given));
  disk_.bytes(1)[marks_offset + 100] ^= std::byte{1};
  std::copy_n(given.begin(), 100, disk_.bytes(0).begin() + 8 * block_bytes);
  std::copy_n(given.begin(), block_bytes, contents_.begin() + 3 * block_bytes);
  open();
  EXPECT_EQ(volume_->info()->recovered_blocks, 0U);
  EXPECT_NE(volume_->info()->warning.find("damaged sectors of marks in its side file: 1;"), std::string::npos)
      << volume_->info()->warning;
  expect_damaged({8});
}

TEST_F(DamagedVolume, FilesThatWereCutAreRefused) {
  disk_.bytes(0).resize(damaged_size - block_bytes);
  const auto opened = StoredVolume::open("v", {disk_.open(0), disk_.open(1)}, {});
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().text.find("was cut"), std::string::npos) << opened.error().text;
}

TEST_F(DamagedVolume, AReadOnlyVolumeIsNotWritten) {
  const auto opened = StoredVolume::open("v", {disk_.open(0), disk_.open(1)}, {.read_only = true});
  ASSERT_TRUE(opened);
  std::vector<std::byte> memory(block_bytes);
  EXPECT_TRUE((*opened)->read(0, memory));
  EXPECT_TRUE((*opened)->flush());
  for (const Result<void>& refused : {(*opened)->write(0, memory), (*opened)->discard(0, block_bytes),
                                      (*opened)->write_zeroes(0, 1, true), (*opened)->resize(region_bytes)}) {
    EXPECT_EQ(refused.error().application_code, EROFS);
  }
}

// A failed sync may have lost writes, and a later sync would not report it.
TEST_F(DamagedVolume, AfterAFailedSyncNothingIsWritten) {
  open();
  const Bytes given = Bytes(contents_).first(block_bytes);
  ASSERT_TRUE(volume_->write(0, given));
  disk_.fail_at(disk_.operations() + 1, EIO, false);
  EXPECT_EQ(volume_->flush().error().application_code, EIO);
  EXPECT_EQ(volume_->flush().error().application_code, EIO);
  EXPECT_EQ(volume_->write(0, given).error().application_code, EIO);
  std::vector<std::byte> memory(block_bytes);
  EXPECT_TRUE(volume_->read(0, memory));
  open();
  EXPECT_TRUE(volume_->flush());
}

TEST_F(DamagedVolume, RangesBehindTheEndAreRefused) {
  open();
  std::vector<std::byte> memory(2);
  EXPECT_EQ(volume_->read(damaged_size - 1, memory).error().application_code, EINVAL);
  EXPECT_EQ(volume_->write(damaged_size - 1, memory).error().application_code, ENOSPC);
  EXPECT_EQ(volume_->write(UINT64_MAX, memory).error().application_code, ENOSPC);
  EXPECT_EQ(volume_->discard(UINT64_MAX, 2).error().application_code, ENOSPC);
  EXPECT_EQ(volume_->write_zeroes(8, UINT64_MAX, false).error().application_code, ENOSPC);
  EXPECT_EQ(volume_->resize(block_bytes + 1).error().application_code, EINVAL);
  EXPECT_TRUE(volume_->read(damaged_size, MutableBytes()));
}

TEST_F(DamagedVolume, ExtentsShowWhereZerosLie) {
  open();
  ASSERT_TRUE(volume_->discard(10 * block_bytes - 1, 3 * block_bytes));
  const std::uint64_t data_end = damaged_size - 16 * block_bytes;
  std::vector<std::pair<std::uint64_t, bool>> found;
  for (std::uint64_t offset = 5; offset < damaged_size;) {
    const Result<StoredVolume::Extent> extent = volume_->extent(offset, damaged_size);
    ASSERT_TRUE(extent);
    found.emplace_back(extent->end, extent->zeros);
    offset = extent->end;
  }
  const std::vector<std::pair<std::uint64_t, bool>> expected = {
      {10 * block_bytes, false}, {12 * block_bytes, true}, {data_end, false}, {damaged_size, true}};
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace hawser::block
