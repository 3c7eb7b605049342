// The names of new folders are durable.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "block/store/disk_directory.h"
#include "block/store/disk_file.h"
#include "block/store/store.h"

namespace hawser::block {
namespace {

namespace fs = std::filesystem;

std::mutex synced_mutex;
std::vector<ino_t> synced;            // Inodes of the files that fsync() was called for.
std::atomic<ino_t> failing_file = 0;  // The file for which fdatasync() fails.

ino_t inode_of(const fs::path& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

bool was_synced(const fs::path& path) {
  const std::lock_guard lock(synced_mutex);
  return std::ranges::find(synced, inode_of(path)) != synced.end();
}

}  // namespace
}  // namespace hawser::block

// These take the place of the functions of the C library in this program.
extern "C" int fdatasync(int file) {
  struct stat status{};
  if (fstat(file, &status) != 0 || status.st_ino != hawser::block::failing_file) {
    return static_cast<int>(syscall(SYS_fdatasync, file));
  }
  errno = EIO;
  return -1;
}

extern "C" int fsync(int file) {
  struct stat status{};
  if (fstat(file, &status) == 0) {
    const std::lock_guard lock(hawser::block::synced_mutex);
    hawser::block::synced.push_back(status.st_ino);
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}

namespace hawser::block {
namespace {

TEST(BlockFolders, TheFoldersAroundANewOneAreSynced) {
  const TemporaryFolder temporary;
  fs::create_directory(temporary.path() / "there");
  {
    const std::lock_guard lock(synced_mutex);
    synced.clear();  // Folders of other tests, whose inodes may be used again.
  }
  ASSERT_TRUE(DiskDirectory::open(temporary.path() / "there" / "a" / "b" / "volumes", {}));
  for (const char* const folder : {"there", "there/a", "there/a/b"}) {
    EXPECT_TRUE(was_synced(temporary.path() / folder)) << folder;
  }
  EXPECT_FALSE(was_synced(temporary.path())) << "nothing was made in it";
}

std::string medium_of(const fs::path& folder) {
  const auto directory = DiskDirectory::open(folder, DiskDirectoryOptions());
  EXPECT_TRUE(directory);
  return directory ? (*directory)->medium() : "";
}

// The next start does not know of the loss otherwise, and the kernel reports it once.
TEST(BlockFolders, AFailedSyncIsTheEndOfTheMedium) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "volumes";
  const std::string before = medium_of(folder);
  {
    auto store = VolumeStore::open(std::move(*DiskDirectory::open(folder, DiskDirectoryOptions())), {});
    ASSERT_TRUE(store);
    EXPECT_EQ((*store)->medium(), before);
    const auto volume = (*store)->create("v", 8192, false);
    ASSERT_TRUE(volume);
    ASSERT_TRUE((*volume)->write(0, std::vector<std::byte>(4096, std::byte{7})));
    failing_file = inode_of(folder / "v" / "data");
    EXPECT_FALSE((*store)->close());
    failing_file = 0;
  }
  const std::string after = medium_of(folder);
  EXPECT_NE(after, before);
  EXPECT_EQ(medium_of(folder), after);
  fs::copy(folder, temporary.path() / "copy", fs::copy_options::recursive);
  EXPECT_NE(medium_of(temporary.path() / "copy"), after);
}

// Then the mark of the loss has no text.
TEST(BlockFolders, AFailedSyncOfAFullDiskIsTheEndOfTheMedium) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "volumes";
  const auto action = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  std::string before = medium_of(folder);
  EXPECT_EQ(medium_of(folder), before) << "a start that makes the mark is not a loss";
  EXPECT_TRUE(fs::exists(folder / ".medium"));
  for (const std::string name : {"first", "second"}) {
    {
      auto store = VolumeStore::open(std::move(*DiskDirectory::open(folder, DiskDirectoryOptions())), {});
      ASSERT_TRUE(store);
      EXPECT_EQ((*store)->medium(), before);
      const auto volume = (*store)->create(name, 8192, false);
      ASSERT_TRUE(volume);
      ASSERT_TRUE((*volume)->write(0, std::vector<std::byte>(4096, std::byte{7})));
      failing_file = inode_of(folder / name / "data");
      const rlimit full{.rlim_cur = 0, .rlim_max = limit.rlim_max};
      setrlimit(RLIMIT_FSIZE, &full);
      EXPECT_FALSE((*store)->close());
      setrlimit(RLIMIT_FSIZE, &limit);
      failing_file = 0;
    }
    const std::string after = medium_of(folder);
    EXPECT_NE(after, before);
    EXPECT_EQ(medium_of(folder), after);
    before = after;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Times of files move in ticks of at most 10 ms.
  }
  std::signal(SIGXFSZ, action);
}

// It may say that there was a loss.
TEST(BlockFolders, AMarkThatCannotBeReadIsALoss) {
  const TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "volumes";
  const std::string before = medium_of(folder);
  fs::remove(folder / ".medium");
  EXPECT_EQ(medium_of(folder), before) << "a folder of an earlier version has no mark";
  fs::remove(folder / ".medium");
  fs::create_directory(folder / ".medium");
  EXPECT_NE(medium_of(folder), before);
  EXPECT_NE(medium_of(folder), medium_of(folder));
}

TEST(BlockFolders, AFolderThatCannotBeMadeIsReported) {
  const TemporaryFolder temporary;
  const fs::path file = temporary.path() / "file";
  ::close(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const Result<void> made = make_folders(file / "volumes");
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().text.find("cannot make the folder"), std::string::npos) << made.error().text;
}

}  // namespace
}  // namespace hawser::block
