#include "kv/memory_turns.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

namespace hawser::kv {
namespace {

using hawser::detail::ReceiveAccount;
using hawser::detail::ReceiveBudget;

// Calls of two connections of one loop. `order` has the names of those that got memory, and behind a minus those that
// failed.
class MemoryTurnsTest : public ::testing::Test {
 protected:
  static constexpr std::size_t memory_bytes = 100'000;
  static constexpr std::size_t needed_bytes = 50'000;

  // The call keeps its memory until release() of its name.
  void begin(char name, ReceiveAccount& account, std::size_t bytes, std::stop_token token = {}) {
    run([&] { calls.spawn(call(name, account, bytes, token)); });
  }
  void release(char name) {
    run([&] { released[name].set(); });
  }
  void pass() { loop.run(several_looks()); }
  template <class Work>
  void run(Work work) {
    const auto once = [](Work& given) -> Task<void> {
      given();
      co_return;
    };
    loop.run(once(work));
    pass();
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  ReceiveBudget budget{memory_bytes, memory_bytes};
  ReceiveAccount one{&budget};
  ReceiveAccount other{&budget};
  MemoryTurns turns;
  std::map<char, Event> released;
  std::string order;
  Scope calls;

 private:
  static Task<void> several_looks() { (void)co_await Loop::current()->sleep(10 * MemoryTurns::interval); }
  Task<void> call(char name, ReceiveAccount& account, std::size_t bytes, std::stop_token token) {
    rpc::WorkCharge charge;
    const Result<void> charged = co_await turns.charge(charge, account, bytes, needed_bytes, std::move(token));
    if (!charged) order += '-';
    order += name;
    if (charged) co_await released[name].wait();
  }
};

TEST_F(MemoryTurnsTest, TheOldestCallOfAConnectionComesFirst) {
  begin('a', one, 90'000);
  begin('b', one, 50'000);
  begin('c', one, 5'000);
  EXPECT_EQ(order, "a") << "there is memory for the last one";
  begin('d', other, 5'000);
  EXPECT_EQ(order, "ad") << "it waits for no other connection";
  release('a');
  EXPECT_EQ(order, "adbc");
  for (const char name : {'b', 'c', 'd'}) release(name);
  EXPECT_EQ(budget.used(), 0U);
}

TEST_F(MemoryTurnsTest, ACallThatStopsOrEndsDoesNotHoldTheOthers) {
  std::stop_source first;
  std::stop_source last;
  begin('a', other, 100'000);
  begin('b', one, 10'000, first.get_token());
  begin('c', one, 10'000);
  begin('d', one, 10'000, last.get_token());
  run([&] { last.request_stop(); });
  run([&] { first.request_stop(); });
  EXPECT_EQ(order, "a-d-b");
  release('a');
  EXPECT_EQ(order, "a-d-bc");
  release('c');
  begin('e', other, 100'000);
  begin('f', one, 10'000);
  EXPECT_EQ(order, "a-d-bce");
  run([&] { calls.clear(); });
  EXPECT_EQ(budget.used(), 0U);
  begin('g', one, 10'000);
  EXPECT_EQ(order, "a-d-bceg");
  release('g');
}

TEST_F(MemoryTurnsTest, MoreThanThereIsNeedsHalfOfIt) {
  begin('a', other, 60'000);
  begin('b', one, 300'000);
  EXPECT_EQ(order, "a");
  release('a');
  EXPECT_EQ(order, "ab");
  EXPECT_GE(budget.used(), needed_bytes);
  EXPECT_LE(budget.used(), memory_bytes);
  release('b');
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
}  // namespace hawser::kv
