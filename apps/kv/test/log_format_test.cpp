// The format of the append-only log.
#include "kv/log/log_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/crc32c.h"

namespace hawser::kv {
namespace {

using ::testing::HasSubstr;

struct ReadFile {
  std::vector<EffectRecord> records;
  std::size_t cut = 0;
  std::string error;
};

ReadFile read_log(std::string_view text) {
  ReadFile read;
  LogReader reader(text);
  if (const Result<LogHeader> begun = reader.header(); !begun) {
    read.error = begun.error().text;
    return read;
  }
  for (;;) {
    const auto next = reader.next();
    if (!next) {
      read.error = next.error().text;
      return read;
    }
    if (!*next) break;
    read.records.push_back(**next);
  }
  read.cut = reader.cut_bytes();
  return read;
}

std::string two_records() {
  std::string text = log_header({});
  append_record(text, {.kind = LogKind::set, .key = "first", .value = "value", .expires_at = 7, .version = 9});
  return text;
}

TEST(LogFormat, TailsAreCutAtEveryByte) {
  const std::string first = two_records();
  std::string text = first;
  append_record(text, {.kind = LogKind::set, .key = "second", .value = std::string(40, 'v'), .version = 10});
  ASSERT_EQ(read_log(text).records.size(), 2U);
  EXPECT_EQ(read_log(text).records[0].expires_at, 7);
  EXPECT_EQ(read_log(text).records[1].value, std::string(40, 'v'));
  for (std::size_t size = first.size(); size < text.size(); ++size) {
    const std::string torn = text.substr(0, size);
    const ReadFile read = read_log(torn);
    EXPECT_EQ(read.error, "") << size;
    ASSERT_EQ(read.records.size(), 1U) << size;
    EXPECT_EQ(read.cut, size - first.size());
  }
  for (std::size_t at = first.size(); at < text.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const ReadFile read = read_log(damaged);
      EXPECT_EQ(read.error, "") << at;
      ASSERT_EQ(read.records.size(), 1U) << at;
      EXPECT_EQ(read.records[0].key, "first");
    }
  }
}

TEST(LogFormat, DamageBeforeSyncedDataIsAnError) {
  std::string text = two_records();
  const std::size_t synced = text.size();
  text += synced_record({}, synced);
  append_record(text, {.kind = LogKind::remove, .key = "first"});
  ASSERT_EQ(read_log(text).records.size(), 3U);
  for (std::size_t at = 0; at < synced; ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_NE(read_log(damaged).error, "") << at;
  }
  std::string damaged = text;
  damaged[log_header_bytes] ^= 1;
  EXPECT_THAT(read_log(damaged).error, HasSubstr("offset " + std::to_string(log_header_bytes)));
  // Nothing shows that the record had been on the disk.
  damaged = text;
  damaged[synced + 3] ^= 1;
  EXPECT_EQ(read_log(damaged).error, "");
  EXPECT_EQ(read_log(damaged).records.size(), 1U);
}

TEST(LogFormat, ValuesThatLookLikeRecordsAreNone) {
  // A client may know where its value will be in the file, but not the number of the file.
  const LogHeader header{.file = 0x1234567890abcdef};
  for (const std::size_t place : {1U, 30U, 1000U}) {
    std::string text = log_header(header);
    append_record(text, {.kind = LogKind::set, .key = "k", .value = "v", .version = 1});
    const std::size_t begin = text.size();
    std::string value(place, 'v');
    // The value begins 30 bytes behind the beginning of its record.
    for (const std::size_t offset : {begin + 1, begin + 30 + place, begin + 30 + place + 33}) {
      value += synced_record({}, offset);
    }
    append_record(text, {.kind = LogKind::set, .key = "k", .value = value, .version = 2});
    ASSERT_EQ(read_log(text).records.size(), 2U);
    text.pop_back();
    EXPECT_EQ(read_log(text).error, "") << place;
    EXPECT_EQ(read_log(text).records.size(), 1U) << place;
    // The record of the writer counts.
    text += synced_record(header, text.size());
    EXPECT_THAT(read_log(text).error, HasSubstr("damaged at offset " + std::to_string(begin))) << place;
    // One of an earlier place does not: it is a copy of the file's beginning in a value.
    text.resize(text.size() - synced_record(header, 0).size());
    text += synced_record(header, begin - 1);
    EXPECT_EQ(read_log(text).error, "") << place;
  }
}

// The lines of a program whose standard output is the file, or an editor.
TEST(LogFormat, InsertedAndRemovedBytesAreErrors) {
  const LogHeader header{.file = 77};
  std::string text = log_header(header);
  std::vector<std::size_t> places;
  for (int i = 0; i < 4; ++i) {
    places.push_back(text.size());
    append_record(text, {.kind = LogKind::set, .key = "key" + std::to_string(i), .value = "value", .version = 1});
    places.push_back(text.size());
    text += synced_record(header, text.size());
  }
  ASSERT_EQ(read_log(text).records.size(), 8U);
  // Behind the last record that says what has been synced, bytes are a tail like any other.
  const std::size_t synced = text.size() - synced_record(header, 0).size();
  for (std::size_t at = log_header_bytes; at <= synced; ++at) {
    EXPECT_NE(read_log(std::string(text).insert(at, "hawser-kv: serving at 127.0.0.1:6379\n")).error, "") << at;
    if (at < synced) {
      EXPECT_NE(read_log(std::string(text).erase(at, 1)).error, "") << at;
    }
  }
  // A whole record that was removed, and one that was inserted.
  std::string changed = text;
  changed.erase(places[2], places[3] - places[2]);
  EXPECT_THAT(read_log(changed).error,
              HasSubstr("removed before offset " + std::to_string(places[2]) + ": the record at offset " +
                        std::to_string(places[2]) + " was written at offset " + std::to_string(places[3])));
  changed = text;
  changed.insert(places[2], text, places[0], places[1] - places[0]);
  EXPECT_THAT(read_log(changed).error, HasSubstr("was written at offset " + std::to_string(places[3])));
}

TEST(LogFormat, AFileOfAnEarlierVersionIsNamed) {
  // The first 16 bytes of a file of version 1, which has no more before its records.
  std::string text = log_header({}).substr(0, 16);
  text[8] = 1;
  const std::uint32_t checksum = crc32c(as_bytes(text.substr(0, 12)));
  for (int i = 0; i < 4; ++i) text[12 + i] = static_cast<char>(checksum >> (8 * i));
  EXPECT_THAT(read_log(text).error, HasSubstr("it has version 1 of the format, and this program reads version 2"));
}

}  // namespace
}  // namespace hawser::kv
