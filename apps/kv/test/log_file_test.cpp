#include "kv/log/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/temporary_folder.h"

namespace hawser::kv {
namespace {

const LogHeader test_header{.log_first = 1, .log_second = 2, .shard = 0, .shards = 1, .file = 7};

std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {(std::istreambuf_iterator<char>(file)), {}};
}

std::string removal_of(std::string_view key) {
  std::string record;
  append_record(record, {.kind = LogKind::remove, .key = key});
  return record;
}

TEST(LogFile, BeginsWithItsHeaderAndHasWhatWasAppended) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.log";
  Result<LogFile> file = LogFile::create(path, test_header);
  ASSERT_TRUE(file.has_value()) << file.error().text;
  EXPECT_EQ(file->bytes(), log_header_bytes);
  ASSERT_TRUE(file->append(removal_of("key")).has_value());
  EXPECT_EQ(file->bytes(), log_header_bytes + removal_of("key").size());
  EXPECT_EQ(text_of_file(path), log_header(test_header) + removal_of("key"));
}

TEST(LogFile, AMarkerIsDueBehindRecordsThatWereSynced) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.log";
  LogFile file(*create_log_file(path), path, 0, test_header);
  EXPECT_FALSE(file.unsynced());
  ASSERT_TRUE(file.append(log_header(test_header) + removal_of("one")).has_value());
  EXPECT_TRUE(file.unsynced());
  EXPECT_FALSE(file.marker_due());
  ASSERT_TRUE(file.sync().has_value());
  EXPECT_FALSE(file.unsynced());
  EXPECT_TRUE(file.marker_due());
  const std::uint64_t marked = file.bytes();
  ASSERT_TRUE(file.append_marker().has_value());
  EXPECT_FALSE(file.marker_due());
  EXPECT_FALSE(file.unsynced()) << "a marker needs no sync of its own";
  ASSERT_TRUE(file.sync().has_value());
  EXPECT_FALSE(file.marker_due()) << "no record follows the marker";

  const std::string bytes = text_of_file(path);
  EXPECT_EQ(bytes.size(), file.bytes());
  LogReader reader(bytes);
  ASSERT_TRUE(reader.header().has_value());
  EXPECT_EQ((*reader.next())->key, "one");
  const Result<std::optional<EffectRecord>> marker = reader.next();
  ASSERT_TRUE(marker.has_value() && marker->has_value());
  EXPECT_EQ((*marker)->kind, LogKind::synced);
  EXPECT_EQ((*marker)->offset, marked);
  EXPECT_EQ((*marker)->file, test_header.file);
}

TEST(LogFile, GetsANameThatNoFileHas) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.log";
  std::ofstream(path) << "other";
  Result<LogFile> file = LogFile::create(folder.path() / "a.log.tmp", test_header);
  ASSERT_TRUE(file.has_value() && file->append("new").has_value());
  const Result<bool> refused = file->rename_to(path);
  ASSERT_TRUE(refused.has_value());
  EXPECT_FALSE(*refused);
  EXPECT_EQ(text_of_file(path), "other");
  EXPECT_EQ(file->path(), folder.path() / "a.log.tmp");
  std::filesystem::remove(path);
  const Result<bool> renamed = file->rename_to(path);
  ASSERT_TRUE(renamed.has_value());
  EXPECT_TRUE(*renamed);
  EXPECT_EQ(file->path(), path);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "a.log.tmp"));
  EXPECT_EQ(text_of_file(path), log_header(test_header) + "new");
  file->remove();
  EXPECT_FALSE(file->exists());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(LogFile, DoesNotGetANameWhenAnotherFileHasItsOwn) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.log";
  Result<LogFile> file = LogFile::create(folder.path() / "a.log.tmp", test_header);
  ASSERT_TRUE(file.has_value());
  std::filesystem::remove(folder.path() / "a.log.tmp");
  std::ofstream(folder.path() / "a.log.tmp") << "other";
  EXPECT_FALSE(file->rename_to(path).has_value());
  EXPECT_FALSE(std::filesystem::exists(path));
  file->remove();
  EXPECT_EQ(text_of_file(folder.path() / "a.log.tmp"), "other");
}

TEST(LogFile, KnowsItsLength) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.log";
  Result<LogFile> file = LogFile::create(path, test_header);
  ASSERT_TRUE(file.has_value() && file->append("record"));
  EXPECT_TRUE(file->check());
  std::filesystem::resize_file(path, 2);
  const Result<void> checked = file->check();
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().text, path.string() + " has 2 bytes, and 58 were written: it has been changed");
}

TEST(LogFile, DoesNotFollowALinkAtItsPlace) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "a.log";
  std::ofstream(folder.path() / "other") << "kept";
  std::filesystem::create_symlink(folder.path() / "other", path);
  ASSERT_TRUE(LogFile::create(path, test_header).has_value());
  EXPECT_FALSE(std::filesystem::is_symlink(path));
  EXPECT_EQ(text_of_file(folder.path() / "other"), "kept");
}

TEST(LogFile, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  const std::filesystem::path missing = folder.path() / "missing" / "a.log";
  const Result<LogFile> created = LogFile::create(missing, test_header);
  ASSERT_FALSE(created.has_value());
  EXPECT_EQ(created.error().text, "cannot create " + missing.string() + ": No such file or directory");

  LogFile full(Descriptor(open("/dev/full", O_WRONLY | O_CLOEXEC)), "full", 0, test_header);
  const Result<void> appended = full.append("record");
  ASSERT_FALSE(appended.has_value());
  EXPECT_EQ(appended.error().text, "cannot write to full: No space left on device");
  EXPECT_EQ(full.bytes(), 0U);

  Result<LogFile> file = LogFile::create(folder.path() / "a.log", test_header);
  ASSERT_TRUE(file.has_value());
  const Result<bool> renamed = file->rename_to(missing);
  ASSERT_FALSE(renamed.has_value());
  EXPECT_EQ(file->path(), folder.path() / "a.log") << "it keeps its name";
  EXPECT_TRUE(renamed.error().text.starts_with("cannot rename " + file->path().string())) << renamed.error().text;
}

}  // namespace
}  // namespace hawser::kv
