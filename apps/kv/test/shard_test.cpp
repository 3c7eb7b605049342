#include "kv/engine/shard.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "base/random.h"
#include "kv/key_hash.h"

namespace hawser::kv {
namespace {

constexpr HashSecret secret{1, 2};
Key key(std::string_view bytes) { return {bytes, hash_of(secret, bytes)}; }

TEST(KeyHash, IsSipHash) {
  // The key of the reference vectors, 00 01 ... 0f, and the message 00 01 ... 0e; the value is that of SipHash-1-3.
  const HashSecret reference{0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
  std::string message;
  for (char c = 0; c < 15; ++c) message += c;
  EXPECT_EQ(hash_of(reference, ""), 0xabac0158050fc4dcU);
  EXPECT_NE(hash_of(reference, message), hash_of(secret, message));
}

TEST(Arena, ClassesFitAndWasteLittle) {
  for (std::size_t bytes = 1; bytes <= Arena::slot_bytes_max; ++bytes) {
    const std::size_t slot = Arena::class_bytes(Arena::class_of(bytes));
    ASSERT_GE(slot, bytes);
    ASSERT_EQ(slot % Arena::unit_bytes, 0U);
    ASSERT_LE(slot, std::max(bytes + 15, bytes + bytes / 8));
  }
}

// The first bucket is split when there is memory for a part of its entries in the new one. All stay where they are.
TEST(EntryTable, KeepsTheEntriesOfABucketThatCannotBeSplit) {
  constexpr std::size_t buckets = 1024;
  constexpr std::uint8_t entry_class = 3;
  Arena arena(2 << 20);
  EntryTable table(arena);
  ASSERT_EQ(table.buckets(), buckets);
  std::set<std::uint64_t> hashes;
  const auto insert = [&](std::uint64_t hash) {
    Ref ref = arena.take_slot(entry_class);
    if (ref == 0 && arena.add_page(entry_class)) ref = arena.take_slot(entry_class);
    ASSERT_NE(ref, 0U);
    reinterpret_cast<Entry*>(arena.at(ref))->hash = hash;
    ASSERT_TRUE(table.reserve(hash));
    table.insert(hash, ref);
    ASSERT_TRUE(hashes.insert(hash).second);
  };
  // A chain of four full buckets: each entry but one moves to the new bucket.
  for (std::uint64_t i = 0; i < 48; ++i) insert(i << 20 | (i == 30 ? 0 : buckets));
  for (std::uint64_t i = 48; i < 8 * buckets; ++i) insert(i << 20 | (1 + i % (buckets - 1)));
  // Memory for one more bucket of a chain, and for the table's next page.
  ASSERT_TRUE(table.add_segment());
  for (std::size_t i = 0; i < Arena::page_bytes / 64 - 3 - 1; ++i) ASSERT_NE(arena.take_slot(Arena::bucket_class), 0U);
  if (arena.pages_of(entry_class) * (Arena::page_bytes / 64) == 8 * buckets) {
    ASSERT_TRUE(arena.add_page(entry_class));
  }
  while (arena.take_page() != 0) {
  }
  insert(std::uint64_t{1} << 60 | 1);
  EXPECT_EQ(table.buckets(), buckets);
  EXPECT_EQ(table.size(), 8 * buckets + 1);
  for (const std::uint64_t hash : hashes) ASSERT_NE(table.find({{}, hash}), 0U) << hash;
}

struct RemovalCount final : ChangeLog {
  void on_set(const Key&, std::string_view, std::int64_t, std::uint64_t) override { ++sets; }
  void on_expiry(const Key&, std::int64_t) override {}
  void on_remove(const Key&) override { ++removals; }
  void on_clear() override {}
  int sets = 0;
  int removals = 0;
};

// The old value and the new one do not fit together. A crash between two records would lose both.
TEST(Shard, AValueThatFitsAloneReplacesTheOldOneInOneStep) {
  constexpr std::size_t memory = 16 << 20;
  const std::string old(100 * 1024, 'o');
  int replaced = 0;
  int refused = 0;
  for (std::size_t bytes = memory - (1 << 20); bytes < memory; bytes += 8 * 1024) {
    RemovalCount log;
    Shard shard({.memory_bytes = memory, .policy = MemoryPolicy::refuse});
    shard.add_log(log);
    ASSERT_NE(shard.set(key("big"), old, 7'000), nullptr);
    const bool set = shard.set(key("big"), std::string(bytes, 'n'), 9'000) != nullptr;
    ++(set ? replaced : refused);
    Entry* const entry = shard.find(key("big"), 0, false);
    ASSERT_NE(entry, nullptr) << bytes;
    EXPECT_EQ(entry->value(), set ? std::string(bytes, 'n') : old) << bytes;
    EXPECT_EQ(entry->expires_at, set ? 9'000 : 7'000);
    EXPECT_EQ(log.sets, set ? 2 : 1);
    EXPECT_EQ(log.removals, 0);
    EXPECT_EQ(shard.with_expiry(), 1U);
  }
  EXPECT_GT(replaced, 0);
  EXPECT_GT(refused, 0);
}

// APPEND to a value that does not fit twice.
TEST(Shard, AValueGrowsWhoseOldAndNewLengthDoNotFitTogether) {
  constexpr std::size_t memory = 16 << 20;
  for (const MemoryPolicy policy : {MemoryPolicy::refuse, MemoryPolicy::evict}) {
    RemovalCount log;
    Shard shard({.memory_bytes = memory, .policy = policy});
    shard.add_log(log);
    constexpr std::size_t before = 9 << 20;
    const std::string old(before, 'o');
    ASSERT_NE(shard.set(key("big"), old, 7'000), nullptr);
    Entry* entry = shard.resize(key("big"), before + 5000, 0);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->value(), old + std::string(5000, '\0'));
    shard.changed(*entry);
    EXPECT_EQ(entry->expires_at, 7'000);
    EXPECT_EQ(shard.with_expiry(), 1U);
    EXPECT_EQ(log.sets, 2);
    const std::uint64_t version = entry->version;
    EXPECT_EQ(shard.resize(key("big"), memory, 0), nullptr) << "it does not fit alone";
    entry = shard.find(key("big"), 0, false);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->value_bytes, before + 5000);
    EXPECT_EQ(entry->version, version);
    EXPECT_EQ(shard.with_expiry(), 1U);
    entry = shard.resize(key("big"), 10, 0);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->value(), old.substr(0, 10));
    EXPECT_EQ(log.sets, 2) << "the caller logs it";
    EXPECT_EQ(log.removals, 0);
  }
}

// KEYS counts each once.
TEST(Shard, AScanBySectionsVisitsEachOnceWhileTheTableGrowsAndIsEmptied) {
  for (const bool emptied : {false, true}) {
    Shard shard({.memory_bytes = 64 << 20});
    const auto add = [&](int begin, int end) {
      for (int i = begin; i < end; ++i) {
        const std::string name = "key" + std::to_string(i);
        ASSERT_NE(shard.set(key(name), "v", 0), nullptr);
      }
    };
    add(0, 40'000);
    const std::uint64_t sections = shard.sections();
    EXPECT_LE(sections, shard.buckets());
    EXPECT_GT(sections, shard.buckets() / 2 - 1);
    std::map<std::string, int> seen;
    for (std::uint64_t section = 0; section < sections; ++section) {
      if (section == sections / 3) add(100'000, emptied ? 100'010 : 300'000);
      if (emptied && section == sections / 2) {
        shard.clear();
        add(0, 20'000);
      }
      if (emptied && section == 3 * (sections / 4)) add(20'000, 40'000);
      shard.scan_section(sections, section, never_expired, [&](Entry& entry) { ++seen[std::string(entry.key())]; });
    }
    for (const auto& [name, times] : seen) EXPECT_EQ(times, 1) << name;
    if (emptied) continue;
    for (int i = 0; i < 40'000; ++i) ASSERT_TRUE(seen.contains("key" + std::to_string(i))) << i;
  }
}

TEST(Shard, AgreesWithAMap) {
  Shard shard({.memory_bytes = 8 << 20, .policy = MemoryPolicy::refuse});
  std::unordered_map<std::string, std::string> expected;
  Random random(7);
  for (int i = 0; i < 60'000; ++i) {
    const std::string name = "key" + std::to_string(random.below(5000));
    const Key k = key(name);
    switch (random.below(5)) {
      case 0:
      case 1: {
        const std::string value(random.below(random.chance(0.01) ? 40'000 : 300), static_cast<char>(random.next()));
        if (shard.set(k, value, 0) == nullptr) break;
        expected[name] = value;
        break;
      }
      case 2: {
        Entry* const entry = shard.find(k, 0);
        ASSERT_EQ(entry != nullptr, expected.contains(name));
        if (entry != nullptr) {
          ASSERT_EQ(entry->value(), expected[name]);
        }
        break;
      }
      case 3: {
        Entry* const entry = shard.find(k, 0);
        if (entry == nullptr) break;
        shard.remove(*entry);
        expected.erase(name);
        break;
      }
      default: {
        const std::size_t size = random.below(400);
        Entry* const entry = shard.resize(k, size, 0);
        if (entry == nullptr) break;
        shard.changed(*entry);
        expected[name].resize(size);
        ASSERT_EQ(entry->value(), expected[name]);
      }
    }
    ASSERT_EQ(shard.size(), expected.size());
    ASSERT_LE(shard.memory_used(), shard.memory_max());
  }
  for (const auto& [name, value] : expected) {
    Entry* const entry = shard.find(key(name), 0);
    ASSERT_NE(entry, nullptr);
    ASSERT_EQ(entry->value(), value);
  }
  shard.clear();
  EXPECT_EQ(shard.size(), 0U);
  EXPECT_EQ(shard.find(key("key1"), 0), nullptr);
}

TEST(Shard, GrowsWhileItIsScanned) {
  Shard shard({.memory_bytes = 64 << 20, .policy = MemoryPolicy::refuse});
  for (int i = 0; i < 20'000; ++i) ASSERT_NE(shard.set(key("a" + std::to_string(i)), "v", 0), nullptr);
  std::set<std::string> seen;
  std::uint64_t cursor = 0;
  int added = 0;
  do {
    cursor = shard.scan(cursor, 0, [&](Entry& entry) { seen.emplace(entry.key()); });
    for (int i = 0; i < 50 && added < 100'000; ++i) {
      ASSERT_NE(shard.set(key("b" + std::to_string(added++)), "v", 0), nullptr);
    }
  } while (cursor != 0);
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(seen.contains("a" + std::to_string(i))) << i;
}

TEST(Shard, ExpiresByTheTimeOfTheCaller) {
  Shard shard({});
  ASSERT_NE(shard.set(key("a"), "1", 1000), nullptr);
  ASSERT_NE(shard.set(key("b"), "2", 0), nullptr);
  EXPECT_NE(shard.find(key("a"), 999), nullptr);
  EXPECT_EQ(shard.find(key("a"), 1000), nullptr);
  EXPECT_EQ(shard.size(), 1U);
  EXPECT_EQ(shard.stats().expired.get(), 1U);
  for (int i = 0; i < 5000; ++i) ASSERT_NE(shard.set(key("c" + std::to_string(i)), "v", 2000 + i % 2), nullptr);
  EXPECT_EQ(shard.with_expiry(), 5000U);
  shard.remove_expired(2000, 100'000);
  EXPECT_EQ(shard.size(), 2501U);
  shard.remove_expired(2001, 100'000);
  EXPECT_EQ(shard.size(), 1U);
  EXPECT_EQ(shard.with_expiry(), 0U);
}

TEST(Shard, StaysWithinItsMemoryAndEvicts) {
  Shard shard({.memory_bytes = 4 << 20, .policy = MemoryPolicy::evict});
  Random random(3);
  // Sizes that change with time, so that pages must move between classes, and values outside.
  for (int i = 0; i < 200'000; ++i) {
    const std::size_t size = i % 1000 == 999 ? 200'000 : i < 70'000 ? 40 : i < 140'000 ? 900 : 100;
    ASSERT_NE(shard.set(key("k" + std::to_string(i)), std::string(size, 'x'), 0), nullptr) << i;
    ASSERT_LE(shard.memory_used(), shard.memory_max());
    if (i % 3 == 0) static_cast<void>(shard.find(key("k" + std::to_string(random.below(200'000))), 0));
  }
  EXPECT_GT(shard.stats().evicted.get(), 0U);
  EXPECT_GT(shard.size(), 5000U);
}

TEST(Shard, EvictionSparesWhatIsRead) {
  Shard shard({.memory_bytes = 2 << 20, .policy = MemoryPolicy::evict});
  int misses = 0;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_NE(shard.set(key(std::to_string(1'000'000 + i)), std::string(64, 'c'), 0), nullptr);
    if (i % 100 != 0 || shard.find(key("7654321"), 0) != nullptr) continue;
    ASSERT_NE(shard.set(key("7654321"), std::string(64, 'h'), 0), nullptr);
    ++misses;
  }
  // Without the protection it would be evicted about six times: 16,000 entries fit. The first miss is its insertion,
  // and another comes when the page with it is given to the table.
  EXPECT_LE(misses, 2);
  EXPECT_GT(shard.stats().evicted.get(), 80'000U);
}

TEST(Shard, RefusesWithoutMemoryAndKeepsWhatItHas) {
  Shard shard({.memory_bytes = 2 << 20, .policy = MemoryPolicy::refuse});
  int stored = 0;
  while (shard.set(key("k" + std::to_string(stored)), std::string(100, 'x'), 0) != nullptr) ++stored;
  EXPECT_GT(stored, 8000);
  EXPECT_EQ(shard.set(key("big"), std::string(3 << 20, 'x'), 0), nullptr);
  EXPECT_EQ(shard.size(), static_cast<std::size_t>(stored));
  for (int i = 0; i < stored; ++i) ASSERT_NE(shard.find(key("k" + std::to_string(i)), 0), nullptr) << i;
  // A refused change leaves the old value.
  EXPECT_EQ(shard.set(key("k0"), std::string(5000, 'y'), 0), nullptr);
  EXPECT_EQ(shard.find(key("k0"), 0)->value(), std::string(100, 'x'));
  shard.remove(*shard.find(key("k1"), 0));
  EXPECT_NE(shard.set(key("k1"), std::string(100, 'z'), 0), nullptr);
}

TEST(Shard, VersionsGrow) {
  Shard shard({.first_version = 50});
  const std::uint64_t first = shard.set(key("a"), "1", 0)->version;
  EXPECT_EQ(first, 50U);
  shard.remove(*shard.find(key("a"), 0));
  EXPECT_GT(shard.set(key("a"), "1", 0)->version, first);
}

}  // namespace
}  // namespace hawser::kv
