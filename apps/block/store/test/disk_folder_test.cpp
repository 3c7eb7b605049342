// The names of new folders are durable.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <vector>

#include "base/temporary_folder.h"
#include "block/store/disk_directory.h"
#include "block/store/disk_file.h"

namespace hawser::block {
namespace {

namespace fs = std::filesystem;

std::mutex synced_mutex;
std::vector<ino_t> synced;  // Inodes of the files that fsync() was called for.

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

// Takes the place of the function of the C library in this program.
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
