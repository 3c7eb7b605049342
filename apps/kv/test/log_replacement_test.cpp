#include "kv/log/log_replacement.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "base/temporary_folder.h"
#include "kv/test/sync_hook.h"

namespace hawser::kv {
namespace {

struct LogReplacementTest : ::testing::Test {
  void SetUp() override {
    Result<LogFile> created = LogFile::create(path(1), LogHeader{.log_first = 1, .log_second = 2, .file = 7});
    ASSERT_TRUE(created.has_value()) << created.error().text;
    log = std::move(*created);
    replacement.emplace(log);
  }
  std::filesystem::path path(int number) const {
    return folder.path() / ("shard-0." + std::to_string(number) + ".log");
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder.path()), {}));
  }

  const TemporaryFolder folder;
  LogFile log;
  std::optional<LogReplacement> replacement;
};

TEST_F(LogReplacementTest, ACompleteReplacementIsTheLog) {
  ASSERT_TRUE(replacement->begin(log, path(2)).has_value());
  EXPECT_TRUE(replacement->exists());
  EXPECT_EQ(replacement->file().header().file, 8U);
  EXPECT_EQ(replacement->file().header().log_first, 1U);
  EXPECT_EQ(log.path(), path(1));
  ASSERT_TRUE(replacement->complete(log, path(2)).has_value());
  EXPECT_FALSE(replacement->exists());
  EXPECT_EQ(log.path(), path(2));
  EXPECT_EQ(log.header().file, 8U);
  EXPECT_FALSE(replacement->take_undecided());
  EXPECT_EQ(files(), 1U) << "the file before is removed";
}

TEST_F(LogReplacementTest, EveryReplacementHasANumberOfItsOwn) {
  ASSERT_TRUE(replacement->begin(log, path(2)).has_value());
  ASSERT_TRUE(replacement->begin(log, path(2)).has_value());
  EXPECT_EQ(replacement->file().header().file, 9U) << "records of the discarded one must not be taken for its own";
  ASSERT_TRUE(replacement->complete(log, path(2)).has_value());
  EXPECT_EQ(files(), 1U);
}

TEST_F(LogReplacementTest, AFileOfAnotherIsNotReplaced) {
  std::ofstream(path(2)) << "other";
  ASSERT_TRUE(replacement->begin(log, path(2)).has_value());
  ASSERT_TRUE(replacement->complete(log, path(2)).has_value());
  EXPECT_EQ(log.path(), path(3));
  EXPECT_EQ(std::filesystem::file_size(path(2)), 5U);
}

TEST_F(LogReplacementTest, AFolderThatWasReplacedGetsNoFile) {
  const std::filesystem::path moved = folder.path().string() + ".moved";
  std::filesystem::rename(folder.path(), moved);
  std::filesystem::create_directory(folder.path());
  const Result<void> begun = replacement->begin(log, path(2));
  ASSERT_FALSE(begun.has_value());
  EXPECT_NE(begun.error().text.find("has been replaced by another one"), std::string::npos) << begun.error().text;
  EXPECT_EQ(files(), 0U);
  std::filesystem::remove(folder.path());
  std::filesystem::rename(moved, folder.path());
  EXPECT_TRUE(replacement->begin(log, path(2)).has_value());
}

TEST_F(LogReplacementTest, AnErrorBeforeTheNameLeavesTheLog) {
  ASSERT_TRUE(replacement->begin(log, path(2)).has_value());
  {
    const SyncHook hook([](int) { return EIO; });
    EXPECT_FALSE(replacement->complete(log, path(2)).has_value());
  }
  EXPECT_FALSE(replacement->take_undecided());
  EXPECT_FALSE(replacement->exists());
  EXPECT_EQ(log.path(), path(1));
  EXPECT_FALSE(std::filesystem::exists(path(2)));
}

TEST_F(LogReplacementTest, AnErrorBehindTheNameLeavesUndecidedWhichFileCounts) {
  ASSERT_TRUE(replacement->begin(log, path(2)).has_value());
  {
    // The file has its name when the folder is synced.
    const SyncHook hook([this](int) { return std::filesystem::exists(path(2)) ? EIO : 0; });
    EXPECT_FALSE(replacement->complete(log, path(2)).has_value());
  }
  EXPECT_TRUE(replacement->take_undecided());
  EXPECT_FALSE(replacement->take_undecided()) << "it is reported once";
  EXPECT_EQ(log.path(), path(1));
  EXPECT_TRUE(std::filesystem::exists(path(2))) << "it may be the one that counts";

  ASSERT_TRUE(replacement->begin(log, path(3)).has_value());
  ASSERT_TRUE(replacement->complete(log, path(3)).has_value());
  EXPECT_EQ(log.path(), path(3));
  EXPECT_EQ(files(), 1U) << "the next replacement has all that both had";
}

}  // namespace
}  // namespace hawser::kv
