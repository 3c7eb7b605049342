// A disk that fails while a folder of the log is read.
#include <dirent.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/temporary_folder.h"
#include "kv/log/log_file_name.h"
#include "kv/log/run_files.h"
#include "kv/test/resp_peer.h"

namespace hawser::kv {
namespace {

std::atomic<bool> folders_fail = false;
thread_local DIR* read_in_part = nullptr;  // The last folder of which an entry was read.

// While it exists, no folder can be read behind its first entry.
struct FolderFailure {
  FolderFailure() { folders_fail = true; }
  FolderFailure(const FolderFailure&) = delete;
  FolderFailure& operator=(const FolderFailure&) = delete;
  ~FolderFailure() { folders_fail = false; }
};

template <class Found>
Found* hooked_readdir(DIR* folder, const char* name) {
  if (folders_fail && read_in_part == folder) {
    errno = EIO;
    return nullptr;
  }
  Found* const found = reinterpret_cast<Found* (*)(DIR*)>(dlsym(RTLD_NEXT, name))(folder);
  read_in_part = found != nullptr && found->d_name[0] != '.' ? folder : nullptr;
  return found;
}

}  // namespace
}  // namespace hawser::kv

// They take the place of the functions of the C library in this program.
extern "C" dirent* readdir(DIR* folder) { return hawser::kv::hooked_readdir<dirent>(folder, "readdir"); }
extern "C" dirent64* readdir64(DIR* folder) { return hawser::kv::hooked_readdir<dirent64>(folder, "readdir64"); }

namespace hawser::kv {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(LogNames, AFolderThatIsReadInPartIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "shard-0.0.log") << "text";
  std::ofstream(folder.path() / "shard-0.1.log") << "text";
  const std::string error = "read the folder " + folder.path().string();
  const FolderFailure failure;
  const auto unused = unused_log_path(folder.path() / "shard-0.2.log");
  ASSERT_FALSE(unused);
  EXPECT_THAT(unused.error().text, HasSubstr(error));
  const auto files = find_run_files(folder.path());
  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().text, HasSubstr(error));
}

TEST(LogNames, AServerGoesOnWhileItsFolderCannotBeRead) {
  const TemporaryFolder folder;
  const LogOptions options{.folder = folder.path(),
                           .shards = {.sync = LogSync::always,
                                      .rewriting = {.repair_pause_min = 1ms, .repair_pause_max = 1ms},
                                      .check_interval = 24h}};
  KvServer server({}, {}, &options);
  RespPeer peer(server.address());
  EXPECT_EQ(peer.call({"SET", "key", "1"}), "+OK\r\n");
  const auto end = std::chrono::steady_clock::now() + 100s;
  {
    const FolderFailure failure;
    std::filesystem::rename(folder.path() / "run-1" / "shard-0.0.log", folder.path() / "run-1" / "moved");
    EXPECT_THAT(peer.call({"SET", "key", "2"}), HasSubstr("-MISCONF Errors writing to the log: "));
    while (peer.call({"INFO", "persistence"}).find("aof_last_bgrewrite_status:err") == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
    }
    EXPECT_EQ(peer.call({"GET", "key"}), "$1\r\n2\r\n");
    EXPECT_THAT(peer.call({"SET", "key", "3"}), HasSubstr("-MISCONF Errors writing to the log: "));
  }
  while (peer.call({"SET", "key", "4"}) != "+OK\r\n") ASSERT_LT(std::chrono::steady_clock::now(), end);
}

}  // namespace
}  // namespace hawser::kv
