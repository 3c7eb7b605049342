// Volumes in a folder and in memory.
#include "block/store/store.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "block/store/aligned_buffer.h"
#include "block/store/disk_directory.h"
#include "block/store/disk_file.h"

namespace hawser::block {
namespace {

namespace fs = std::filesystem;

class BlockStore : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "hawser-block-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    store_.reset();
    fs::remove_all(folder_);
  }
  Result<void> open(bool read_only = false) {
    store_.reset();
    auto directory = DiskDirectory::open(folder_ / "volumes", {.read_only = read_only});
    if (!directory) return std::unexpected(directory.error());
    auto store = VolumeStore::open(std::move(*directory), {.read_only = read_only});
    if (!store) return std::unexpected(store.error());
    store_ = std::move(*store);
    return {};
  }
  int code(const auto& result) { return result ? 0 : result.error().application_code; }

  fs::path folder_;
  std::unique_ptr<VolumeStore> store_;
};

TEST_F(BlockStore, VolumesStayInTheFolder) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(store_->create("b", region_bytes, false));
  const auto made = store_->create("a.1", 3 * region_bytes, true);
  ASSERT_TRUE(made) << made.error().text;
  std::vector<std::byte> bytes(100'001, std::byte{5});
  EXPECT_GE((*made)->info()->allocated_bytes, 3 * region_bytes);
  ASSERT_TRUE((*made)->resize(2 * region_bytes));
  ASSERT_TRUE((*made)->write(77, bytes, true));
  ASSERT_TRUE(open());  // As after a kill.
  EXPECT_EQ(store_->names(), (std::vector<std::string>{"a.1", "b"}));
  const auto found = store_->find("a.1");
  ASSERT_TRUE(found) << found.error().text;
  EXPECT_EQ((*found)->size(), 2 * region_bytes);
  EXPECT_TRUE((*found)->info()->preallocated);
  EXPECT_EQ((*found)->info()->recovered_blocks, 256U);
  std::vector<std::byte> read(bytes.size());
  ASSERT_TRUE((*found)->read(77, read));
  EXPECT_EQ(read, bytes);
  EXPECT_EQ((*found)->scrub(0, (*found)->size())->damaged, 0U);
  ASSERT_TRUE(store_->close());
  ASSERT_TRUE(open());
  EXPECT_EQ((*store_->find("a.1"))->info()->recovered_blocks, 0U);
}

TEST_F(BlockStore, ADiscardFreesSpace) {
  ASSERT_TRUE(open());
  const auto volume = store_->create("v", 8 * region_bytes, false);
  ASSERT_TRUE(volume);
  const std::vector<std::byte> bytes(8 * region_bytes, std::byte{5});
  ASSERT_TRUE((*volume)->write(0, bytes, true));
  const std::uint64_t before = (*volume)->info()->allocated_bytes;
  ASSERT_TRUE((*volume)->discard(0, 7 * region_bytes));
  EXPECT_LT((*volume)->info()->allocated_bytes, before);
  std::vector<std::byte> read(7 * region_bytes, std::byte{1});
  ASSERT_TRUE((*volume)->read(0, read));
  EXPECT_EQ(read, std::vector<std::byte>(read.size()));
  EXPECT_EQ((*volume)->scrub(0, 8 * region_bytes)->damaged, 0U);
}

TEST_F(BlockStore, TwoServersOnOneFolderAreRefused) {
  ASSERT_TRUE(open());
  const auto second = DiskDirectory::open(folder_ / "volumes", {});
  EXPECT_EQ(code(second), EBUSY);
  EXPECT_EQ(code(DiskDirectory::open(folder_ / "volumes", {.read_only = true})), EBUSY);
  store_.reset();
  EXPECT_TRUE(DiskDirectory::open(folder_ / "volumes", {}));
}

TEST_F(BlockStore, NamesAreChecked) {
  ASSERT_TRUE(open());
  for (const char* const name : {"", ".", "..", "a/b", "-a", ".a", "a b", "\xc3\xa4"}) {
    EXPECT_EQ(code(store_->create(name, region_bytes, false)), EINVAL) << name;
    EXPECT_EQ(code(store_->find(name)), ENOENT) << name;
    EXPECT_EQ(code(store_->remove(name)), ENOENT) << name;
  }
  EXPECT_EQ(code(store_->create(std::string(65, 'a'), region_bytes, false)), EINVAL);
  ASSERT_TRUE(store_->create(std::string(64, 'a'), region_bytes, false));
  EXPECT_EQ(code(store_->create(std::string(64, 'a'), region_bytes, false)), EEXIST);
  EXPECT_EQ(code(store_->create("lock", region_bytes, false)), EEXIST);
  for (const std::uint64_t size : {std::uint64_t{0}, block_bytes + 1, volume_bytes_max + block_bytes}) {
    EXPECT_EQ(code(store_->create("v", size, false)), EINVAL);
  }
  ASSERT_TRUE(store_->create("v", block_bytes, false));
}

TEST_F(BlockStore, ARemovedVolumeIsGone) {
  ASSERT_TRUE(open());
  const auto volume = store_->create("v", region_bytes, false);
  ASSERT_TRUE(volume);
  ASSERT_TRUE(store_->remove("v"));
  std::byte byte{};
  EXPECT_EQ(code((*volume)->read(0, {&byte, 1})), ENODEV);
  EXPECT_EQ(code((*volume)->write(0, {&byte, 1})), ENODEV);
  EXPECT_FALSE(fs::exists(folder_ / "volumes" / "v"));
  ASSERT_TRUE(store_->create("v", 2 * region_bytes, false));
}

TEST_F(BlockStore, AStartRemovesWhatACrashHasLeft) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(store_->create("v", region_bytes, false));
  store_.reset();
  fs::copy(folder_ / "volumes" / "v", folder_ / "volumes" / ".new-w");
  fs::copy(folder_ / "volumes" / "v", folder_ / "volumes" / ".removed-v");
  fs::create_directory(folder_ / "volumes" / "other");
  ASSERT_TRUE(open());
  EXPECT_EQ(store_->names(), std::vector<std::string>{"v"});
  EXPECT_FALSE(fs::exists(folder_ / "volumes" / ".new-w"));
  EXPECT_FALSE(fs::exists(folder_ / "volumes" / ".removed-v"));
  EXPECT_TRUE(fs::exists(folder_ / "volumes" / "other"));
}

TEST_F(BlockStore, ADamagedVolumeDoesNotPreventOthers) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(store_->create("good", region_bytes, false));
  ASSERT_TRUE(store_->create("bad", region_bytes, false));
  store_.reset();
  fs::resize_file(folder_ / "volumes" / "bad" / "data", 5);
  ASSERT_TRUE(open());
  EXPECT_TRUE(store_->find("good"));
  EXPECT_EQ(code(store_->find("bad")), EIO);
  EXPECT_EQ(code(store_->create("bad", region_bytes, false)), EEXIST);
  EXPECT_TRUE(store_->remove("bad"));
  EXPECT_TRUE(store_->create("bad", region_bytes, false));
}

TEST_F(BlockStore, AReadOnlyFolderIsServed) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(store_->create("v", region_bytes, false));
  ASSERT_TRUE(store_->close());
  ASSERT_TRUE(open(true));
  EXPECT_EQ(code(store_->create("w", region_bytes, false)), EROFS);
  EXPECT_EQ(code(store_->remove("v")), EROFS);
  std::byte byte{1};
  ASSERT_TRUE(store_->find("v"));
  EXPECT_TRUE((*store_->find("v"))->read(0, {&byte, 1}));
  EXPECT_EQ(code((*store_->find("v"))->write(0, {&byte, 1})), EROFS);
}

TEST_F(BlockStore, MemoryIsBounded) {
  // Checksums and marks count too.
  auto store = VolumeStore::open(std::make_unique<MemoryDirectory>(2 * region_bytes + region_bytes / 2), {});
  ASSERT_TRUE(store);
  const auto a = (*store)->create("a", 16 * region_bytes, false);
  const auto b = (*store)->create("b", region_bytes, false);
  ASSERT_TRUE(a && b);
  const std::vector<std::byte> bytes(region_bytes, std::byte{1});
  ASSERT_TRUE((*a)->write(0, bytes));
  ASSERT_TRUE((*b)->write(0, bytes));
  EXPECT_EQ(code((*a)->write(8 * region_bytes, bytes)), ENOSPC);
  std::vector<std::byte> read(region_bytes);
  ASSERT_TRUE((*a)->read(0, read));
  EXPECT_EQ(read, bytes);
  ASSERT_TRUE((*b)->discard(0, region_bytes));
  EXPECT_TRUE((*a)->write(8 * region_bytes, bytes));
  EXPECT_EQ(code((*store)->create("c", region_bytes, true)), ENOSPC);
  ASSERT_TRUE((*store)->remove("a"));
}

// ---- Files ----

TEST_F(BlockStore, AFileHasWhatWasWritten) {
  const auto file = DiskFile::open(folder_ / "f", {.create = true, .direct = true});
  ASSERT_TRUE(file) << file.error().text;
  AlignedBuffer buffer(2 * block_bytes);
  std::ranges::fill(buffer.bytes(), std::byte{3});
  ASSERT_TRUE((*file)->resize(8 * block_bytes));
  ASSERT_TRUE((*file)->write(block_bytes, buffer.bytes()));
  ASSERT_TRUE((*file)->zero(2 * block_bytes, block_bytes, false));
  ASSERT_TRUE((*file)->allocate(0, 8 * block_bytes));
  ASSERT_TRUE((*file)->sync());
  AlignedBuffer read(10 * block_bytes);
  std::ranges::fill(read.bytes(), std::byte{9});
  ASSERT_TRUE((*file)->read(0, read.bytes()));
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(read.bytes()[i * block_bytes + 5], i == 1 ? std::byte{3} : std::byte{}) << i;
  }
  EXPECT_EQ(*(*file)->size(), 8 * block_bytes);
  EXPECT_EQ(code(DiskFile::open(folder_ / "f", {.create = true})), EEXIST);
  EXPECT_EQ(code(DiskFile::open(folder_, {})), EISDIR);
  fs::create_symlink(folder_ / "f", folder_ / "link");
  EXPECT_EQ(code(DiskFile::open(folder_ / "link", {})), ELOOP);
}

TEST_F(BlockStore, AFileThatMayNotGrowReportsIt) {
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto action = std::signal(SIGXFSZ, SIG_IGN);
  const auto file = DiskFile::open(folder_ / "f", {.create = true});
  struct rlimit limit = before;
  limit.rlim_cur = block_bytes;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::vector<std::byte> bytes(2 * block_bytes);
  const Result<void> written = (*file)->write(0, bytes);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, action);
  EXPECT_EQ(code(written), EFBIG);
}

}  // namespace
}  // namespace hawser::block
