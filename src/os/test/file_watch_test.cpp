#include "os/file_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "base/temporary_folder.h"

namespace hawser {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

// Counts the notifications of a FileWatch.
class Notifications {
 public:
  FileWatch::Notified function() {
    return [this](bool changed) {
      const std::lock_guard lock(mutex_);
      ++(changed ? changes_ : calls_);
      arrived_.notify_all();
    };
  }
  // Waits for the next change, or the next call.
  bool changed() { return wait(changes_); }
  bool called() { return wait(calls_); }

 private:
  bool wait(int& count) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(60), [&] { return count != 0; })) return false;
    count = 0;
    return true;
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  int changes_ = 0;
  int calls_ = 0;
};

TEST(FileWatch, AFileThatIsWrittenOrReplacedIsNoticed) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "file";
  Notifications notifications;
  FileWatch watch(notifications.function());
  EXPECT_FALSE(watch.active());
  const Result<void> watched = watch.watch({path.string()});
  ASSERT_TRUE(watched) << watched.error().text;
  EXPECT_TRUE(watch.active());
  write_text(path, "made");
  EXPECT_TRUE(notifications.changed());
  write_text(folder.path() / "other", "text");
  fs::rename(folder.path() / "other", path);
  EXPECT_TRUE(notifications.changed());
  watch.stop();
  EXPECT_FALSE(watch.active());
  EXPECT_TRUE(watch.watch({path.string()})) << "it does nothing";
  EXPECT_FALSE(watch.active());
}

TEST(FileWatch, CallsLaterThoughNothingHasChanged) {
  const TemporaryFolder folder;
  Notifications notifications;
  FileWatch watch(notifications.function());
  const Result<void> watched = watch.watch({(folder.path() / "file").string()});
  ASSERT_TRUE(watched) << watched.error().text;
  watch.call_later(std::chrono::milliseconds(1));
  EXPECT_TRUE(notifications.called());
}

TEST(FileWatch, TheEndOfOneLeavesTheOthersOfItsFolder) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "file";
  Notifications of_first;
  Notifications of_second;
  FileWatch first(of_first.function());
  FileWatch second(of_second.function());
  for (FileWatch* const watch : {&first, &second}) {
    const Result<void> watched = watch->watch({path.string()});
    ASSERT_TRUE(watched) << watched.error().text;
  }
  first.stop();
  write_text(path, "made");
  EXPECT_TRUE(of_second.changed());
}

// The kernel follows 40 links, as far as a file can be opened.
TEST(FileWatch, TheFileBehindManyLinksIsWatched) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "far");
  const fs::path file = folder.path() / "far" / "file";
  write_text(file, "first");
  const auto link = [&](int number) { return folder.path() / ("link" + std::to_string(number)); };
  fs::create_symlink(file, link(1));
  for (int i = 2; i <= 40; ++i) fs::create_symlink(link(i - 1).filename(), link(i));
  std::string text;
  std::ifstream(link(40)) >> text;
  if (text != "first") GTEST_SKIP() << "a link above the folder of temporary files counts, too";
  Notifications notifications;
  FileWatch watch(notifications.function());
  const Result<void> watched = watch.watch({link(40).string()});
  ASSERT_TRUE(watched) << watched.error().text;
  write_text(file, "second");
  EXPECT_TRUE(notifications.changed());
}

TEST(FileWatch, ARingOfLinksEnds) {
  const TemporaryFolder folder;
  fs::create_symlink("b", folder.path() / "a");
  fs::create_symlink("a", folder.path() / "b");
  Notifications notifications;
  FileWatch watch(notifications.function());
  const Result<void> watched = watch.watch({(folder.path() / "a").string()});
  ASSERT_TRUE(watched) << watched.error().text;
  fs::remove(folder.path() / "a");
  EXPECT_TRUE(notifications.changed());
}

TEST(FileWatch, TooManyFoldersAreRefused) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (std::size_t i = 0; i <= FileWatch::folders_max; ++i) {
    const fs::path one = folder.path() / std::to_string(i);
    fs::create_directory(one);
    paths.push_back((one / "file").string());
  }
  FileWatch watch([](bool) {});
  const Result<void> watched = watch.watch(paths);
  ASSERT_FALSE(watched);
  EXPECT_EQ(watched.error().code, ErrorCode::limit_exceeded);
  EXPECT_FALSE(watch.active());
}

TEST(FileStamp, AnotherFileHasAnotherOne) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "file";
  EXPECT_EQ(file_stamp(path.string()), "absent");
  write_text(path, "one");
  const std::string first = file_stamp(path.string());
  EXPECT_EQ(file_stamp(path.string()), first);
  write_text(path, "longer");
  EXPECT_NE(file_stamp(path.string()), first) << "another length";
  write_text(folder.path() / "other", "one");
  fs::rename(path, folder.path() / "kept");
  fs::rename(folder.path() / "other", path);
  EXPECT_NE(file_stamp(path.string()), first) << "another file";
}

}  // namespace
}  // namespace hawser
