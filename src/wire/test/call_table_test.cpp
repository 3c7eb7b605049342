#include "wire/call_table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/random.h"

namespace hawser::wire {
namespace {

struct Call {};
using Table = CallTable<Call>;

TEST(CallTable, AnswersReachOnlyTheirCall) {
  Table table(2);
  Call first;
  Call second;
  const CallId one = table.open(first);
  EXPECT_EQ(one, CallId(0, 1));
  EXPECT_EQ(table.find(one).call, &first);
  table.close(one);
  EXPECT_EQ(table.find(one).state, Table::State::unknown);
  const CallId two = table.open(second);
  EXPECT_EQ(two, CallId(0, 2));
  EXPECT_EQ(table.find(one).state, Table::State::unknown);
  EXPECT_EQ(table.find(two).call, &second);
  for (const std::uint32_t wrong : {0U, 1U, 0x10001U, 0xffff'ffffU, two.number() + 0x10000}) {
    EXPECT_EQ(table.find(CallId::from_number(wrong)).state, Table::State::unknown) << wrong;
  }
}

// An id of generation 0 would belong to no call.
TEST(CallTable, GenerationsWrapAroundZero) {
  Table table(1);
  Call call;
  for (std::uint32_t i = 0; i < 65'535; ++i) {
    const CallId last = table.open(call);
    ASSERT_EQ(last.generation(), i + 1);
    table.close(last);
  }
  EXPECT_EQ(table.open(call), CallId(0, 1));
}

TEST(CallTable, AbandonedCallsKeepTheirSlot) {
  Table table(1);
  Call call;
  const CallId id = table.open(call);
  EXPECT_TRUE(table.full());
  table.abandon(id);
  EXPECT_TRUE(table.full());
  EXPECT_EQ(table.find(id).state, Table::State::abandoned);
  EXPECT_EQ(table.find(id).call, nullptr);
  table.each_open([](Call&) { FAIL() << "nobody waits for it"; });
  table.close(id);
  EXPECT_FALSE(table.full());
}

TEST(CallTable, HoldsNoMoreThanIdsCanTell) {
  Table table(1'000'000);
  EXPECT_EQ(table.calls_max(), 65'536U);
  Call call;
  std::set<std::uint32_t> ids;
  while (!table.full()) ids.insert(table.open(call).number());
  EXPECT_EQ(ids.size(), 65'536U);
}

// Compares random operations with a model over std::map.
TEST(CallTable, BehavesAsItsModel) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    const std::size_t most = 1 + random.below(40);
    Table table(most);
    std::map<std::uint32_t, Call*> model;  // Null for an abandoned call.
    std::vector<std::uint32_t> gone;       // Ids as numbers, like the keys of the model.
    std::vector<std::unique_ptr<Call>> calls;
    for (int step = 0; step < 5'000; ++step) {
      const std::uint64_t action = random.below(10);
      if (action < 5) {
        ASSERT_EQ(table.full(), model.size() == most);
        if (table.full()) continue;
        calls.push_back(std::make_unique<Call>());
        const CallId id = table.open(*calls.back());
        ASSERT_LT(id.slot(), most);
        ASSERT_NE(id.generation(), 0U);
        ASSERT_TRUE(model.emplace(id.number(), calls.back().get()).second);
      } else if (!model.empty()) {
        const auto at = std::next(model.begin(), static_cast<std::ptrdiff_t>(random.below(model.size())));
        if (action < 7 && at->second != nullptr) {
          table.abandon(CallId::from_number(at->first));
          at->second = nullptr;
        } else {
          table.close(CallId::from_number(at->first));
          gone.push_back(at->first);
          model.erase(at);
        }
      }
      ASSERT_EQ(table.size(), model.size());
      for (const auto& [id, call] : model) {
        const Table::Found found = table.find(CallId::from_number(id));
        ASSERT_EQ(found.state, call != nullptr ? Table::State::open : Table::State::abandoned);
        ASSERT_EQ(found.call, call);
      }
      if (!gone.empty()) {
        const std::uint32_t old = gone[random.below(gone.size())];
        if (!model.contains(old)) {
          ASSERT_EQ(table.find(CallId::from_number(old)).state, Table::State::unknown);
        }
      }
      std::multiset<Call*> open;
      table.each_open([&](Call& call) { open.insert(&call); });
      std::multiset<Call*> expected;
      for (const auto& [id, call] : model) {
        if (call != nullptr) expected.insert(call);
      }
      ASSERT_EQ(open, expected);
    }
  }
}

}  // namespace
}  // namespace hawser::wire
