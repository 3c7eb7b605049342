// Starts of a volume: on a full disk, with another side file, and in the midst of a resize.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "block/store/memory_file.h"
#include "block/store/stored_volume.h"
#include "block/store/test/forwarding_file.h"
#include "block/store/test/simulated_disk.h"

namespace hawser::block {
namespace {

constexpr std::uint64_t first_size = 8 * region_bytes;

class BlockStart : public ::testing::Test {
 protected:
  void SetUp() override {
    VolumeFiles files{disk_.open(0), disk_.open(1)};
    ASSERT_TRUE(StoredVolume::format(files, first_size, Uuid{std::byte{7}}, false));
    ASSERT_TRUE(open());
  }
  Result<void> open(bool read_only = false) {
    volume_.reset();
    auto opened = StoredVolume::open("v", {disk_.open(0), disk_.open(1)}, {.read_only = read_only});
    if (!opened) return std::unexpected(opened.error());
    volume_ = std::move(*opened);
    return {};
  }
  // The power is cut when a new block has its data and not its checksum.
  void cut_before_the_checksum(std::uint64_t offset) {
    const std::uint64_t before = disk_.operations();
    // This block's checksum is in another page of the side file.
    ASSERT_TRUE(volume_->write(offset - 4 * region_bytes, bytes_));
    const std::uint64_t operations = disk_.operations() - before;
    disk_.fail_at(disk_.operations() + operations, EIO, true);
    ASSERT_FALSE(volume_->write(offset, bytes_));
    disk_.fail_never();
    std::fill_n(disk_.bytes(1).begin() + static_cast<std::ptrdiff_t>(entry_offset(offset / block_bytes)), 4,
                std::byte{});
  }
  void expect_contents(std::uint64_t offset) {
    std::vector<std::byte> found(bytes_.size());
    const Result<void> read = volume_->read(offset, found);
    ASSERT_TRUE(read) << read.error().text;
    EXPECT_EQ(found, bytes_);
  }

  SimulatedDisk disk_{1};
  std::unique_ptr<StoredVolume> volume_;
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(block_bytes, std::byte{5});
};

// The space of a checksum is there before its data.
TEST_F(BlockStart, AFullDiskPreventsNoWriteOfAChecksum) {
  ASSERT_NO_FATAL_FAILURE(cut_before_the_checksum(4 * region_bytes));
  disk_.fill(false);
  const Result<void> opened = open();
  ASSERT_TRUE(opened) << opened.error().text;
  EXPECT_FALSE(volume_->info()->read_only) << volume_->info()->warning;
  expect_contents(4 * region_bytes);
  // A new block has no space, and one that is there has.
  EXPECT_EQ(volume_->write(6 * region_bytes, bytes_).error().application_code, ENOSPC);
  EXPECT_TRUE(volume_->write(4 * region_bytes, bytes_, true));
}

TEST_F(BlockStart, AFullDiskThatBearsNoWriteMakesTheVolumeReadOnly) {
  ASSERT_NO_FATAL_FAILURE(cut_before_the_checksum(4 * region_bytes));
  disk_.fill(true);
  const Result<void> opened = open();
  ASSERT_TRUE(opened) << opened.error().text;
  EXPECT_TRUE(volume_->info()->read_only);
  EXPECT_NE(volume_->info()->warning.find("the disk was full when the server started"), std::string::npos)
      << volume_->info()->warning;
  expect_contents(4 * region_bytes);
  EXPECT_EQ(volume_->scrub(0, first_size)->damaged, 0U);
  const Result<void> written = volume_->write(0, bytes_);
  EXPECT_EQ(written.error().application_code, EROFS);
  EXPECT_NE(written.error().text.find("free space"), std::string::npos) << written.error().text;
  EXPECT_TRUE(volume_->flush());
  EXPECT_TRUE(volume_->close());
  disk_.free_space();
  ASSERT_TRUE(open());
  EXPECT_FALSE(volume_->info()->read_only);
  expect_contents(4 * region_bytes);
  EXPECT_TRUE(volume_->write(0, bytes_, true));
}

TEST_F(BlockStart, AVolumeThatWasInUseIsServedReadOnly) {
  ASSERT_NO_FATAL_FAILURE(cut_before_the_checksum(4 * region_bytes));
  const std::vector<std::byte> side = disk_.bytes(1);
  const Result<void> opened = open(true);
  ASSERT_TRUE(opened) << opened.error().text;
  expect_contents(4 * region_bytes);
  EXPECT_EQ(disk_.bytes(1), side);
}

// The writes of a server that was killed may be in the memory of the kernel only.
TEST_F(BlockStart, AFlushOfAReadOnlyVolumeMakesEarlierWritesDurable) {
  for (std::uint64_t offset = 0; offset < 8 * block_bytes; offset += block_bytes) {
    ASSERT_TRUE(volume_->write(offset, bytes_));
    ASSERT_TRUE(open(true));
    ASSERT_TRUE(volume_->flush());
    disk_.cut();
    ASSERT_TRUE(open());
    ASSERT_NO_FATAL_FAILURE(expect_contents(offset));
  }
  ASSERT_TRUE(open(true));
  disk_.fail_at(disk_.operations() + 1, EIO, false);
  EXPECT_FALSE(volume_->flush());
  disk_.fail_never();
  EXPECT_FALSE(volume_->flush()) << "the writes may be lost";
  expect_contents(0);
}

TEST_F(BlockStart, AnOlderSideFileCutsNoData) {
  ASSERT_TRUE(volume_->close());
  const std::vector<std::byte> older = disk_.bytes(1);
  ASSERT_TRUE(open());
  ASSERT_TRUE(volume_->resize(2 * first_size));
  ASSERT_TRUE(volume_->write(2 * first_size - block_bytes, bytes_, true));
  ASSERT_TRUE(volume_->close());
  const std::vector<std::byte> newer = std::exchange(disk_.bytes(1), older);
  const Result<void> opened = open();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().application_code, EIO);
  EXPECT_NE(opened.error().text.find("may be older than the data"), std::string::npos) << opened.error().text;
  EXPECT_EQ(disk_.bytes(0).size(), 2 * first_size);
  ASSERT_TRUE(open(true));
  EXPECT_EQ(volume_->size(), first_size);
  disk_.bytes(1) = newer;
  ASSERT_TRUE(open());
  expect_contents(2 * first_size - block_bytes);
}

// Whatever the operation at which the power is cut, the volume has the old size or the new one, and its bytes.
TEST_F(BlockStart, AResizeIsCutAtEachOperation) {
  for (const std::uint64_t size : {first_size / 2, 2 * first_size}) {
    for (std::uint64_t operation = 1;; ++operation) {
      SCOPED_TRACE("to " + std::to_string(size) + " at operation " + std::to_string(operation));
      ASSERT_TRUE(volume_->resize(first_size));
      ASSERT_TRUE(volume_->write(block_bytes, bytes_, true));
      disk_.fail_at(disk_.operations() + operation, EIO, true);
      const Result<void> resized = volume_->resize(size);
      const bool failed = disk_.failed();
      disk_.cut();
      const Result<void> opened = open();
      ASSERT_TRUE(opened) << opened.error().text;
      EXPECT_TRUE(volume_->size() == size || (volume_->size() == first_size && !resized)) << volume_->size();
      EXPECT_EQ(disk_.bytes(0).size(), volume_->size());
      expect_contents(block_bytes);
      EXPECT_EQ(volume_->scrub(0, UINT64_MAX)->damaged, 0U);
      if (!failed) {
        EXPECT_GT(operation, 8U);
        break;
      }
    }
  }
}

// ---- Exceptions, errors of syncs ----

// A file in memory. Its next write throws.
template <class Exception>
class ThrowingFile final : public ForwardingFile {
 public:
  explicit ThrowingFile(const bool& throws) : throws_(throws) {}
  Result<void> write(std::uint64_t offset, Bytes bytes) override {
    if (throws_) throw Exception();
    return ForwardingFile::write(offset, bytes);
  }

 private:
  const bool& throws_;
};

struct OtherException : std::runtime_error {
  OtherException() : std::runtime_error("a test") {}
};

template <class Exception, class Write>
void expect_no_mark_after(Write&& write) {
  bool throws = false;
  VolumeFiles files{std::make_unique<ThrowingFile<Exception>>(throws), std::make_unique<MemoryFile>()};
  ASSERT_TRUE(StoredVolume::format(files, region_bytes, Uuid{}, false));
  auto volume = StoredVolume::open("v", std::move(files), {.flushes_per_clear = 1});
  ASSERT_TRUE(volume);
  throws = true;
  write(**volume);
  throws = false;
  EXPECT_EQ((*volume)->info()->marked_regions, 1U);
  EXPECT_TRUE((*volume)->flush());
  EXPECT_TRUE((*volume)->flush());
  EXPECT_EQ((*volume)->info()->marked_regions, 0U);
}

TEST(BlockVolumeMarks, AWriteWithoutMemoryKeepsNoMark) {
  expect_no_mark_after<std::bad_alloc>([](StoredVolume& volume) {
    const std::vector<std::byte> bytes(100, std::byte{1});
    EXPECT_EQ(volume.write(7, bytes).error().application_code, ENOMEM);
  });
}

TEST(BlockVolumeMarks, AWriteThatThrowsKeepsNoMark) {
  expect_no_mark_after<OtherException>([](StoredVolume& volume) {
    const std::vector<std::byte> bytes(100, std::byte{1});
    EXPECT_THROW((void)volume.write(7, bytes), OtherException);
  });
}

// Later writes get the error of the sync that failed, and not another one.
TEST_F(BlockStart, TheErrorOfAFailedSyncOfMarksIsKept) {
  const std::unique_ptr<File> side = disk_.open(1);
  RegionMarks marks(*side, Checksummer(Uuid{}));
  ASSERT_TRUE(marks.load(first_size));
  disk_.fail_at(disk_.operations() + 2, ENODEV, false);  // After the write of the sector.
  const Result<void> first = marks.begin_write(0, 1);
  ASSERT_FALSE(first);
  const Result<void> second = marks.begin_write(1, 2);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().application_code, ENODEV);
  EXPECT_EQ(second.error().text, first.error().text);
}

}  // namespace
}  // namespace hawser::block
