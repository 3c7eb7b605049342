#include "table/slot_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"

namespace hawser::table {
namespace {

TEST(SlotTable, AnIdFindsItsValueUntilItIsFreed) {
  SlotTable<std::string> table;
  const auto one = table.add();
  one.value = "one";
  EXPECT_EQ(one.index, 0U);
  EXPECT_EQ(one.generation, 1U);
  ASSERT_NE(table.find(0, 1), nullptr);
  EXPECT_EQ(*table.find(0, 1), "one");
  EXPECT_EQ(table.at(0), table.find(0, 1));
  table.free(0);
  EXPECT_EQ(table.find(0, 1), nullptr);
  EXPECT_EQ(table.at(0), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

TEST(SlotTable, AStaleIdDoesNotFindTheNextValueOfItsSlot) {
  SlotTable<std::string> table;
  const auto old = table.add();
  const auto old_generation = old.generation;
  table.free(old.index);
  EXPECT_EQ(table.find(0, 2), nullptr) << "the generation of the next use, while the slot is free";
  const auto next = table.add();
  EXPECT_EQ(next.index, 0U);
  EXPECT_NE(next.generation, old_generation);
  EXPECT_EQ(table.generation(0), next.generation);
  EXPECT_EQ(next.value, "") << "the value of the use before";
  EXPECT_EQ(table.find(0, old_generation), nullptr);
  EXPECT_NE(table.find(0, next.generation), nullptr);
}

TEST(SlotTable, IdsThatWereNeverGivenFindNothing) {
  SlotTable<int> table;
  EXPECT_EQ(table.find(0, 1), nullptr);
  EXPECT_EQ(table.at(0), nullptr);
  table.add();
  for (const std::size_t index : {std::size_t{1}, std::size_t{2}, std::size_t{0xffff'ffff}, ~std::size_t{0}}) {
    EXPECT_EQ(table.find(index, 1), nullptr) << index;
    EXPECT_EQ(table.at(index), nullptr) << index;
  }
  for (const std::uint32_t generation : {0U, 2U, 0xffff'ffffU}) EXPECT_EQ(table.find(0, generation), nullptr);
}

TEST(SlotTable, IsFullWhenEachSlotIsInUse) {
  SlotTable<int> table(3);
  EXPECT_EQ(table.slots_max(), 3U);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(table.full());
    EXPECT_EQ(table.add().index, i);
  }
  EXPECT_TRUE(table.full());
  EXPECT_EQ(table.size(), 3U);
  table.free(1);
  EXPECT_FALSE(table.full());
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.add().index, 1U);
  EXPECT_TRUE(table.full());
  EXPECT_TRUE(SlotTable<int>(0).full());
}

TEST(SlotTable, TheSlotThatWasFreedLastIsUsedNext) {
  SlotTable<int> table;
  for (int i = 0; i < 5; ++i) table.add();
  for (const std::size_t index : {std::size_t{3}, std::size_t{0}, std::size_t{4}}) table.free(index);
  EXPECT_EQ(table.add().index, 4U);
  EXPECT_EQ(table.add().index, 0U);
  EXPECT_EQ(table.add().index, 3U);
  EXPECT_EQ(table.add().index, 5U) << "a new slot, when none is free";
}

TEST(SlotTable, GrowsOnlyWhenNoSlotIsFree) {
  SlotTable<int> table;
  for (int i = 0; i < 1000; ++i) table.free(table.add().index);
  EXPECT_EQ(table.slots(), 1U);
  for (int i = 0; i < 100; ++i) table.add();
  EXPECT_EQ(table.slots(), 100U);
  for (std::size_t i = 0; i < 100; ++i) table.free(i);
  EXPECT_EQ(table.slots(), 100U);
  EXPECT_EQ(table.size(), 0U);
}

template <unsigned bits>
void expect_generations() {
  SlotTable<int, bits> table(1);
  constexpr std::uint32_t last = (1U << bits) - 1;
  EXPECT_EQ(table.generation_max, last);
  for (std::uint32_t expected = 1; expected <= last; ++expected) {
    const auto added = table.add();
    ASSERT_EQ(added.generation, expected);
    table.free(added.index);
  }
  EXPECT_EQ(table.add().generation, 1U);
}

TEST(SlotTable, GenerationsWrapAroundWithoutZero) {
  expect_generations<2>();
  expect_generations<10>();
  expect_generations<16>();
  expect_generations<17>();
}

TEST(SlotTable, ValuesAreKeptForTheNextUseOnRequest) {
  SlotTable<std::vector<int>> table;
  table.add().value = {1, 2, 3};
  table.free_keeping(0);
  EXPECT_EQ(table[0].size(), 3U);
  EXPECT_EQ(table.find(0, 1), nullptr);
  const auto again = table.add();
  EXPECT_EQ(again.generation, 2U);
  EXPECT_EQ(again.value.size(), 3U);
}

TEST(SlotTable, AFreedValueIsReleased) {
  SlotTable<std::shared_ptr<int>> table;
  const auto held = std::make_shared<int>(1);
  table.add().value = held;
  EXPECT_EQ(held.use_count(), 2);
  table.free(0);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(SlotTable, ADequeKeepsTheAddresses) {
  SlotTable<std::string, 16, std::deque> table;
  std::string& first = table.add().value;
  first = "first";
  for (int i = 0; i < 1000; ++i) table.add();
  EXPECT_EQ(&first, table.at(0));
  EXPECT_EQ(first, "first");
}

TEST(SlotTable, EachVisitsTheSlotsInUseByIndex) {
  SlotTable<int> table;
  for (int i = 0; i < 4; ++i) table.add().value = 10 * i;
  table.free(0);
  table.free(2);
  std::vector<std::pair<std::size_t, int>> seen;
  std::as_const(table).each([&](std::size_t index, int value) { seen.emplace_back(index, value); });
  EXPECT_EQ(seen, (std::vector<std::pair<std::size_t, int>>{{1, 10}, {3, 30}}));
  table.each([](std::size_t, int& value) { ++value; });
  EXPECT_EQ(*table.at(1), 11);
  EXPECT_EQ(*table.at(3), 31);
}

// Compares random operations with a model.
TEST(SlotTable, BehavesAsItsModel) {
  struct Key {
    std::size_t index;
    std::uint16_t generation;
    auto operator<=>(const Key&) const = default;
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const std::size_t slots_max = 1 + random.below(40);
    SlotTable<std::uint64_t, 16> table(slots_max);
    std::map<Key, std::uint64_t> model;
    std::vector<Key> freed;
    for (int step = 0; step < 3'000; ++step) {
      if (random.below(2) == 0) {
        ASSERT_EQ(table.full(), model.size() == slots_max);
        if (table.full()) continue;
        const auto added = table.add();
        added.value = random.below(1'000'000);
        ASSERT_LT(added.index, slots_max);
        ASSERT_TRUE(model.emplace(Key{added.index, added.generation}, added.value).second);
      } else if (!model.empty()) {
        const auto at = std::next(model.begin(), static_cast<std::ptrdiff_t>(random.below(model.size())));
        table.free(at->first.index);
        freed.push_back(at->first);
        model.erase(at);
      }
      ASSERT_EQ(table.size(), model.size());
      for (const auto& [key, value] : model) {
        const std::uint64_t* const found = table.find(key.index, key.generation);
        ASSERT_NE(found, nullptr);
        ASSERT_EQ(*found, value);
      }
      if (freed.empty()) continue;
      const Key old = freed[random.below(freed.size())];
      ASSERT_EQ(table.find(old.index, old.generation), nullptr) << "no generation is used twice in 3,000 steps";
    }
  }
}

}  // namespace
}  // namespace hawser::table
