#include "wire/metadata.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "hawser/metadata.h"

namespace hawser::wire {
namespace {

std::vector<std::byte> encode(const Metadata& entries) {
  std::size_t bytes = 0;
  for (const auto& [key, value] : entries) bytes += metadata_entry_bytes(key, value);
  std::vector<std::byte> out(bytes);
  std::byte* at = out.data();
  for (const auto& [key, value] : entries) at = write_metadata_entry(at, key, value);
  EXPECT_EQ(at, out.data() + bytes);
  return out;
}

TEST(Metadata, GoesThereAndBack) {
  Random random(4);
  for (int round = 0; round < 200; ++round) {
    Metadata entries(random.below(metadata_entries_max + 1));
    for (auto& [key, value] : entries) {
      key.assign(random.below(256), static_cast<char>('a' + random.below(20)));
      value.assign(random.below(random.chance(0.1) ? 60'000 : 100), static_cast<char>(random.next()));
    }
    const std::vector<std::byte> bytes = encode(entries);
    ASSERT_TRUE(check_metadata(bytes));
    EXPECT_EQ(MetadataView(bytes).copy(), entries);
    for (const auto& [key, value] : entries) {
      const auto first =
          std::find_if(entries.begin(), entries.end(), [&](const auto& one) { return one.first == key; });
      EXPECT_EQ(MetadataView(bytes).find(key), first->second);
    }
  }
}

TEST(Metadata, Bounds) {
  EXPECT_TRUE(check_metadata({}));
  EXPECT_TRUE(MetadataView().empty());
  EXPECT_FALSE(MetadataView().find("key"));
  EXPECT_TRUE(check_metadata(encode(Metadata(64))));
  EXPECT_FALSE(check_metadata(encode(Metadata(65))));
  EXPECT_TRUE(check_metadata(encode({{std::string(255, 'k'), std::string(65'535, 'v')}})));
}

MetadataSize size_of(const Metadata& entries) {
  MetadataSize size;
  for (const auto& [key, value] : entries) size.add(key, value);
  return size;
}

TEST(MetadataSize, IsThatOfTheWrittenEntries) {
  const Metadata entries{{"key", "value"}, {"", ""}, {"k", "v"}};
  EXPECT_EQ(size_of(entries).bytes(), encode(entries).size());
  EXPECT_EQ(size_of({}).bytes(), 0U);
}

TEST(MetadataSize, EachLimitIsTheLastThatFits) {
  EXPECT_TRUE(size_of({}).fits());
  EXPECT_TRUE(size_of(Metadata(64)).fits());
  EXPECT_FALSE(size_of(Metadata(65)).fits());
  EXPECT_TRUE(size_of({{std::string(255, 'k'), ""}}).fits());
  EXPECT_FALSE(size_of({{std::string(256, 'k'), ""}, {"k", ""}}).fits());
  EXPECT_TRUE(size_of({{"k", std::string(65'531, 'v')}}).fits());
  EXPECT_FALSE(size_of({{"k", std::string(65'532, 'v')}}).fits());
}

TEST(MetadataSize, TheTextHasLimitsAndValues) {
  EXPECT_EQ(size_of({{"k", "v"}, {std::string(256, 'k'), "v"}}).too_large_text(),
            "metadata of 2 entries and 265 bytes, with a key of 256 bytes, exceeds a limit: send at most 64 entries, "
            "65535 bytes in all and keys of 255 bytes");
}

TEST(Metadata, CutAnywhereButBetweenEntriesItIsRefused) {
  const std::vector<std::byte> bytes = encode({{"key", "value"}, {"", ""}, {"k", "v"}});
  const std::vector<std::size_t> ends{0, 11, 14, 19};
  ASSERT_EQ(bytes.size(), ends.back());
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    // The test reads a copy, so that a read beyond its end is detected.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(check_metadata(cut), std::find(ends.begin(), ends.end(), size) != ends.end()) << size;
  }
}

TEST(Metadata, WhateverComesIsReadOrRefused) {
  Random random(5);
  for (int i = 0; i < 50'000; ++i) {
    std::vector<std::byte> bytes(random.below(60));
    for (std::byte& one : bytes) one = static_cast<std::byte>(random.below(6));
    if (!check_metadata(bytes)) continue;
    std::size_t read = 0;
    MetadataReader reader(bytes);
    for (std::string_view key, value; reader.next(key, value);) read += metadata_entry_bytes(key, value);
    EXPECT_EQ(read, bytes.size());
  }
}

}  // namespace
}  // namespace hawser::wire
