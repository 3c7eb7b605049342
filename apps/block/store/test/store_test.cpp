// Volumes in a folder and in memory.
#include "block/store/store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "block/store/aligned_buffer.h"
#include "block/store/disk_directory.h"
#include "block/store/disk_file.h"
#include "block/store/store_error.h"
#include "block/store/test/simulated_disk.h"

namespace hawser::block {
namespace {

namespace fs = std::filesystem;

// While it exists, files cannot become longer than `bytes`.
class SmallFiles {
 public:
  explicit SmallFiles(std::uint64_t bytes) : action_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    struct rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;
  ~SmallFiles() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, action_);
  }

 private:
  struct rlimit before_{};
  void (*const action_)(int);
};

class BlockStore : public ::testing::Test {
 protected:
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

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  std::unique_ptr<VolumeStore> store_;
};

TEST_F(BlockStore, VolumesStayInTheFolder) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(store_->create("b", region_bytes, false));
  std::vector<std::byte> bytes(100'001, std::byte{5});
  {
    const auto made = store_->create("a.1", 3 * region_bytes, true);
    ASSERT_TRUE(made) << made.error().text;
    EXPECT_GE((*made)->info()->allocated_bytes, 3 * region_bytes);
    ASSERT_TRUE((*made)->resize(2 * region_bytes));
    ASSERT_TRUE((*made)->write(77, bytes, true));
  }
  ASSERT_TRUE(open());  // As after a kill.
  EXPECT_EQ(store_->names(), (std::vector<std::string>{"a.1", "b"}));
  {
    const auto found = store_->find("a.1");
    ASSERT_TRUE(found) << found.error().text;
    EXPECT_EQ((*found)->size(), 2 * region_bytes);
    EXPECT_TRUE((*found)->info()->preallocated);
    EXPECT_EQ((*found)->info()->recovered_blocks, 256U);
    std::vector<std::byte> read(bytes.size());
    ASSERT_TRUE((*found)->read(77, read));
    EXPECT_EQ(read, bytes);
    EXPECT_EQ((*found)->scrub(0, (*found)->size())->damaged, 0U);
  }
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

// Whatever file is removed, the lock stays.
TEST_F(BlockStore, ARemovedFileLetsNoSecondServerIn) {
  ASSERT_TRUE(open());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "volumes")) {
    if (entry.is_regular_file()) fs::remove(entry.path());
  }
  EXPECT_EQ(code(DiskDirectory::open(folder_ / "volumes", {})), EBUSY);
}

TEST_F(BlockStore, AVolumeInAnotherFolderIsUsedOnce) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(store_->create("v", region_bytes, false));
  fs::create_directory(folder_ / "others");
  fs::create_directory_symlink(folder_ / "volumes" / "v", folder_ / "others" / "w");
  auto directory = DiskDirectory::open(folder_ / "others", {});
  ASSERT_TRUE(directory);
  const auto other = VolumeStore::open(std::move(*directory), {});
  ASSERT_TRUE(other);
  const auto second = (*other)->find("w");
  EXPECT_EQ(code(second), EBUSY);
  EXPECT_NE(second.error().text.find("another process uses"), std::string::npos) << second.error().text;
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
  std::ofstream(folder_ / "volumes" / "other") << "a file of others";
  EXPECT_EQ(code(store_->create("other", region_bytes, false)), EEXIST);
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

// A client that does nothing has the volume still.
TEST_F(BlockStore, ARemovedVolumeUsesNoSpaceOfTheDisk) {
  ASSERT_TRUE(open());
  const auto volume = store_->create("v", region_bytes, true);
  ASSERT_TRUE(volume);
  const fs::path data = folder_ / "volumes" / "v" / "data";
  const fs::path side = folder_ / "volumes" / "v" / "side";
  const auto same_data = DiskFile::open(data, {.read_only = true});
  const auto same_side = DiskFile::open(side, {.read_only = true});
  ASSERT_TRUE(same_data && same_side);
  EXPECT_GE((*same_data)->allocated().value_or(0), region_bytes);
  ASSERT_TRUE(store_->remove("v"));
  EXPECT_EQ((*same_data)->size().value_or(1), 0U);
  EXPECT_EQ((*same_data)->allocated().value_or(1), 0U);
  EXPECT_EQ((*same_side)->size().value_or(1), 0U);
  std::byte byte{};
  EXPECT_EQ(code((*volume)->read(0, {&byte, 1})), ENODEV);
  EXPECT_EQ(code((*volume)->flush()), ENODEV);
  EXPECT_EQ(code((*volume)->info()), ENODEV);
}

TEST_F(BlockStore, AFileOfARemovedVolumeWithAnotherNameIsKept) {
  ASSERT_TRUE(open());
  ASSERT_TRUE(store_->create("v", region_bytes, false));
  fs::create_hard_link(folder_ / "volumes" / "v" / "data", folder_ / "kept");
  ASSERT_TRUE(store_->remove("v"));
  EXPECT_EQ(fs::file_size(folder_ / "kept"), region_bytes);
}

TEST_F(BlockStore, ARemovedVolumeUsesNoMemory) {
  auto store = VolumeStore::open(std::make_unique<MemoryDirectory>(2 * region_bytes), {});
  ASSERT_TRUE(store);
  const std::vector<std::byte> bytes(region_bytes, std::byte{1});
  std::vector<std::shared_ptr<StoredVolume>> held;
  for (int i = 0; i < 8; ++i) {
    const auto volume = (*store)->create("v", region_bytes, false);
    ASSERT_TRUE(volume);
    ASSERT_TRUE((*volume)->write(0, bytes)) << i;
    held.push_back(*volume);
    ASSERT_TRUE((*store)->remove("v"));
  }
  std::vector<std::byte> read(region_bytes);
  EXPECT_EQ(code(held[0]->read(0, read)), ENODEV);
  EXPECT_EQ(code(held[0]->flush()), ENODEV);
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

TEST_F(BlockStore, LeftoversThatStayAreReported) {
  ASSERT_TRUE(open());
  EXPECT_EQ(store_->warnings(), std::vector<std::string>());
  store_.reset();
  fs::create_directory(folder_ / "volumes" / ".removed-v");
  std::ofstream(folder_ / "volumes" / ".removed-v" / "of-others") << "x";
  ASSERT_TRUE(open());
  ASSERT_EQ(store_->warnings().size(), 1U);
  EXPECT_NE(store_->warnings()[0].find(".removed-v"), std::string::npos) << store_->warnings()[0];
  EXPECT_TRUE(fs::exists(folder_ / "volumes" / ".removed-v" / "of-others"));
}

// A new volume is made under another name.
TEST_F(BlockStore, ErrorsOfANewVolumeHaveItsName) {
  ASSERT_TRUE(open());
  const auto volume = store_->create("v", region_bytes, false);
  ASSERT_TRUE(volume);
  const SmallFiles limit(block_bytes);
  const std::vector<std::byte> bytes(block_bytes, std::byte{1});
  const Result<void> written = (*volume)->write(100 * block_bytes, bytes);
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().text.find("volumes/v/"), std::string::npos) << written.error().text;
}

// ---- Volumes that cannot be made ----

// One volume on a simulated disk. publish() fails if `publishes` is false, and leaves the name.
class SimulatedDirectory final : public VolumeDirectory {
 public:
  explicit SimulatedDirectory(SimulatedDisk& disk, const bool& publishes) : disk_(disk), publishes_(publishes) {}
  Result<std::vector<std::string>> names() override { return names_; }
  Result<VolumeFiles> open(const std::string&, bool) override { return files(); }
  Result<VolumeFiles> create(const std::string&) override {
    if (!names_.empty()) return store_fail(EEXIST, "a test");
    for (const std::size_t file : {0U, 1U}) disk_.bytes(file).clear();
    return files();
  }
  Result<void> publish(const std::string& name) override {
    names_ = {name};
    if (publishes_) return {};
    return store_fail(EIO, "a test");
  }
  Result<void> remove(const std::string&) override {
    names_.clear();
    return {};
  }
  void abandon(const std::string&) noexcept override {}
  std::string medium() const override { return "simulated"; }

 private:
  Result<VolumeFiles> files() { return VolumeFiles{disk_.open(0), disk_.open(1)}; }
  SimulatedDisk& disk_;
  const bool& publishes_;
  std::vector<std::string> names_;
};

TEST_F(BlockStore, AVolumeThatCannotBeMadeCanBeMadeAgain) {
  for (std::uint64_t operation = 1;; ++operation) {
    SCOPED_TRACE("operation " + std::to_string(operation));
    SimulatedDisk disk(1);
    const bool publishes = true;
    const auto store = VolumeStore::open(std::make_unique<SimulatedDirectory>(disk, publishes), {});
    ASSERT_TRUE(store);
    disk.fail_at(operation, EIO, false);
    const auto made = (*store)->create("v", region_bytes, false);
    if (!disk.failed()) {
      EXPECT_TRUE(made);
      EXPECT_GT(operation, 10U);
      break;
    }
    if (made) continue;  // An operation whose failure does no harm.
    EXPECT_EQ((*store)->names(), std::vector<std::string>());
    const auto again = (*store)->create("v", region_bytes, false);
    EXPECT_TRUE(again) << again.error().text;
  }
}

TEST_F(BlockStore, AVolumeWhoseNameStaysIsListedAndCanBeRemoved) {
  SimulatedDisk disk(1);
  bool publishes = false;
  const auto store = VolumeStore::open(std::make_unique<SimulatedDirectory>(disk, publishes), {});
  ASSERT_TRUE(store);
  EXPECT_EQ(code((*store)->create("v", region_bytes, false)), EIO);
  publishes = true;
  EXPECT_EQ((*store)->names(), std::vector<std::string>{"v"});
  EXPECT_EQ(code((*store)->find("v")), EIO);
  EXPECT_TRUE((*store)->remove("v"));
  EXPECT_TRUE((*store)->create("v", region_bytes, false));
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

TEST_F(BlockStore, WithoutChecksumsNothingIsVerifiedAndZerosAreKnown) {
  auto directory = DiskDirectory::open(folder_ / "volumes", {.read_only = false, .direct = false});
  ASSERT_TRUE(directory);
  const auto store = VolumeStore::open(std::move(*directory), {.checksums = false});
  ASSERT_TRUE(store);
  const auto volume = (*store)->create("v", region_bytes, false);
  ASSERT_TRUE(volume);
  std::vector<std::byte> bytes(2 * block_bytes, std::byte{1});
  ASSERT_TRUE((*volume)->write(block_bytes, bytes));
  std::fstream file(folder_ / "volumes" / "v" / "data", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(block_bytes);
  file.put(2).flush();
  ASSERT_TRUE(file);
  bytes[0] = std::byte{2};
  std::vector<std::byte> read(bytes.size());
  ASSERT_TRUE((*volume)->read(block_bytes, read));
  EXPECT_EQ(read, bytes);
  const Result<ScrubReport> report = (*volume)->scrub(0, region_bytes);
  EXPECT_EQ(code(report), EOPNOTSUPP);
  EXPECT_EQ(report.error().text,
            "volume v has no checksums to verify, because it is in memory: start the server with --checksums to have "
            "them");
  const auto zeros = (*volume)->extent(0, region_bytes);
  const auto data = (*volume)->extent(block_bytes, region_bytes);
  ASSERT_TRUE(zeros && data);
  EXPECT_TRUE(zeros->zeros);
  EXPECT_EQ(zeros->end, block_bytes);
  EXPECT_FALSE(data->zeros);
  EXPECT_EQ(data->end, 3 * block_bytes);
  ASSERT_TRUE((*volume)->write(block_bytes, std::vector<std::byte>(2 * block_bytes)));
  EXPECT_EQ((*volume)->extent(0, region_bytes).value().end, region_bytes);
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
  const auto file = DiskFile::open(folder_ / "f", {.create = true});
  ASSERT_TRUE(file);
  const std::vector<std::byte> bytes(2 * block_bytes);
  const SmallFiles limit(block_bytes);
  EXPECT_EQ(code((*file)->write(0, bytes)), EFBIG);
}

}  // namespace
}  // namespace hawser::block
