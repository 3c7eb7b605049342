// The thread that writes a log file.
#include "kv/log/log_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "base/temporary_folder.h"

namespace hawser::kv {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogWriter, ARewritingThatFailedIsNotCompletedByItsRest) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "shard-0.0.log";
  const fs::path next = folder.path() / "later" / "shard-0.1.log";
  LogPieces bytes;
  LogPieces part;
  const auto put = [](LogPieces& pieces, std::string_view text) {
    pieces.append([&](std::string& out) { out += text; });
  };
  LogWriter writer(*create_log_file(path), path, 0, {}, LogSync::never, [] {});
  put(part, "first");
  writer.push(bytes, part, next, {.first = true});
  for (bool failed = false; !failed;) {  // Its folder does not exist.
    failed = !writer.progress().replacement_error.empty();
    std::this_thread::yield();
  }
  fs::create_directory(folder.path() / "later");
  put(part, "second");
  put(bytes, "record");
  writer.push(bytes, part, next, {});
  put(part, "third");
  writer.push(bytes, part, next, {.last = true});
  writer.wait_for_replacement();
  EXPECT_FALSE(writer.progress().replaced);
  EXPECT_FALSE(fs::exists(next));
  EXPECT_TRUE(fs::exists(path));
  // Another rewriting begins anew.
  put(part, "all");
  writer.push(bytes, part, next, {.first = true, .last = true});
  writer.wait_for_replacement();
  EXPECT_TRUE(writer.progress().replaced);
  EXPECT_FALSE(fs::exists(path));
  std::ifstream file(next, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, HasSubstr("all"));
  EXPECT_THAT(text, Not(HasSubstr("second")));
}

// Somebody's file at the place of the replacement does not become the log.
TEST(LogWriter, AFileInThePlaceOfTheReplacementDoesNotCount) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "shard-0.0.log";
  const fs::path next = folder.path() / "shard-0.1.log";
  const fs::path temporary = folder.path() / "shard-0.1.log.tmp";
  LogPieces bytes;
  LogPieces part;
  const auto put = [&](std::string_view text) { part.append([&](std::string& out) { out += text; }); };
  std::atomic<int> advanced = 0;
  LogWriter writer(*create_log_file(path), path, 0, {}, LogSync::never, [&] { ++advanced; });
  put("first");
  writer.push(bytes, part, next, {.first = true});
  while (advanced == 0) std::this_thread::yield();
  fs::rename(temporary, folder.path() / "moved");
  std::ofstream(temporary) << "of somebody";
  put("last");
  writer.push(bytes, part, next, {.last = true});
  writer.wait_for_replacement();
  const LogWriter::Progress progress = writer.progress();
  EXPECT_FALSE(progress.replaced);
  EXPECT_THAT(progress.replacement_error, HasSubstr("shard-0.1.log.tmp has been replaced by another file"));
  EXPECT_TRUE(fs::exists(path));
  EXPECT_TRUE(fs::exists(temporary));
  EXPECT_FALSE(fs::exists(next));
  EXPECT_EQ(fs::file_size(folder.path() / "moved"), 52U) << "it would count with the name of a log file";
}

TEST(LogWriter, ASlowDiskBoundsTheBytesInMemory) {
  constexpr std::size_t step = std::size_t{1} << 20;
  constexpr std::size_t held_most = std::size_t{8} << 20;
  constexpr std::size_t all = 6 * held_most;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor reading(ends[0]);
  std::atomic<std::size_t> pushed = 0;
  std::thread client([&] {
    const std::string path = "/proc/self/fd/" + std::to_string(ends[1]);
    LogWriter writer(Descriptor(ends[1]), path, 0, {}, LogSync::never, [] {}, held_most);
    LogPieces nothing;
    LogPieces bytes;
    while (pushed < all) {
      bytes.append([](std::string& out) { out.append(step, 'x'); });
      writer.push(bytes, nothing, "pipe", {});
      pushed += step;
    }
  });
  // The queue with the bytes that are being written, one step, the piece that the pipe takes, and what the pipe holds.
  constexpr std::size_t bound = held_most + 3 * step;
  std::size_t got = 0;
  std::vector<char> bytes(step);
  while (got < all) {
    const ssize_t some = read(reading.get(), bytes.data(), bytes.size());
    if (some <= 0) break;
    EXPECT_LE(pushed, got + bound);
    got += static_cast<std::size_t>(some);
  }
  client.join();
  EXPECT_EQ(got, all);
}

}  // namespace
}  // namespace hawser::kv
