#include "hawser/scope.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "hawser/when.h"

namespace hawser {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class ScopeTest : public testing::Test {
 protected:
  Loop loop{std::make_unique<exec::SimPoller>(), {}};
};
using WhenTest = ScopeTest;

Task<void> sleep_and_count(Loop& loop, Duration duration, int& count) {
  co_await loop.sleep(duration);
  ++count;
}

TEST_F(ScopeTest, SpawnRunsUpToTheFirstSuspension) {
  loop.run([](Loop& self) -> Task<void> {
    Scope scope;
    bool started = false;
    scope.spawn([](Loop& on, bool& flag) -> Task<void> {
      flag = true;
      co_await on.sleep(milliseconds(1));
    }(self, started));
    EXPECT_TRUE(started);
    EXPECT_EQ(scope.size(), 1U);
    scope.spawn([]() -> Task<void> { co_return; }());
    EXPECT_EQ(scope.size(), 1U) << "one that ends at once is gone at once";
    co_await scope.join();
    EXPECT_TRUE(scope.empty());
  }(loop));
}

TEST_F(ScopeTest, JoinWaitsForAll) {
  loop.run([](Loop& self) -> Task<void> {
    Scope scope;
    int count = 0;
    for (const int ms : {5, 1, 3}) scope.spawn(sleep_and_count(self, milliseconds(ms), count));
    co_await scope.join();
    EXPECT_EQ(count, 3);
    co_await scope.join();  // Joining an empty scope ends at once.
    scope.spawn(sleep_and_count(self, milliseconds(1), count));
    co_await scope.join();
    EXPECT_EQ(count, 4);
  }(loop));
}

TEST_F(ScopeTest, TasksMaySpawnIntoTheirScope) {
  loop.run([](Loop& self) -> Task<void> {
    Scope scope;
    int count = 0;
    struct Tree {
      static Task<void> grow(Loop& on, Scope& into, int depth, int& nodes) {
        ++nodes;
        if (depth == 0) co_return;
        co_await on.sleep(milliseconds(1));
        into.spawn(grow(on, into, depth - 1, nodes));
        into.spawn(grow(on, into, depth - 1, nodes));
      }
    };
    scope.spawn(Tree::grow(self, scope, 5, count));
    co_await scope.join();
    EXPECT_EQ(count, 63);
  }(loop));
}

TEST_F(ScopeTest, TheWaiterMayDestroyTheScope) {
  loop.run([](Loop& self) -> Task<void> {
    auto scope = std::make_unique<Scope>();
    int count = 0;
    scope->spawn(sleep_and_count(self, milliseconds(1), count));
    {
      co_await scope->join();
    }
    scope.reset();
    EXPECT_EQ(count, 1);
  }(loop));
}

TEST_F(ScopeTest, ClearEndsTasksWhereTheyAreSuspended) {
  loop.run([](Loop& self) -> Task<void> {
    const auto alive = std::make_shared<int>(0);
    Scope scope;
    for (int i = 0; i < 3; ++i) {
      scope.spawn([](Loop& on, std::shared_ptr<int> held) -> Task<void> {
        co_await on.sleep(hours(1));
        ADD_FAILURE() << "resumed after its end";
        held.reset();
      }(self, alive));
    }
    EXPECT_EQ(alive.use_count(), 4);
    scope.clear();
    EXPECT_EQ(alive.use_count(), 1);
    EXPECT_TRUE(scope.empty());
    co_await self.sleep(hours(2));
  }(loop));
}

// The end of a task may destroy a scope that has tasks itself.
TEST_F(ScopeTest, ScopesWithinTasksEndWithThem) {
  loop.run([](Loop& self) -> Task<void> {
    const auto alive = std::make_shared<int>(0);
    {
      Scope outer;
      outer.spawn([](Loop& on, std::shared_ptr<int> held) -> Task<void> {
        Scope inner;
        inner.spawn([](Loop& within, std::shared_ptr<int> token) -> Task<void> {
          co_await within.sleep(hours(1));
          token.reset();
        }(on, held));
        co_await inner.join();
      }(self, alive));
      EXPECT_EQ(alive.use_count(), 3);
    }
    EXPECT_EQ(alive.use_count(), 1);
    co_return;
  }(loop));
}

TEST(ScopeDeathTest, AnExceptionThatLeavesATaskEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Scope scope;
        scope.spawn([]() -> Task<void> {
          throw std::runtime_error("nobody awaits this");
          co_return;
        }());
      },
      "nobody awaits this");
}

template <class T>
Task<T> later(Loop& loop, Duration duration, T value) {
  co_await loop.sleep(duration);
  co_return value;
}

Task<int> throw_later(Loop& loop, Duration duration, std::string text) {
  co_await loop.sleep(duration);
  throw std::runtime_error(text);
}

TEST_F(WhenTest, AllGivesResultsInOrder) {
  loop.run([](Loop& self) -> Task<void> {
    const Time start = self.now();
    const auto [one, two, three] =
        co_await when_all(later(self, milliseconds(30), 1), later(self, milliseconds(10), std::string("two")),
                          [](Loop& on) -> Task<void> { co_await on.sleep(milliseconds(20)); }(self));
    EXPECT_EQ(one, 1);
    EXPECT_EQ(two, "two");
    EXPECT_EQ(three, std::monostate());
    EXPECT_LT(self.now() - start, milliseconds(31)) << "beside each other";
  }(loop));
}

TEST_F(WhenTest, AllOfAVector) {
  loop.run([](Loop& self) -> Task<void> {
    std::vector<Task<int>> tasks;
    for (int i = 0; i < 10; ++i) tasks.push_back(later(self, milliseconds(10 - i), i));
    const std::vector<int> results = co_await when_all(std::move(tasks));
    EXPECT_EQ(results.size(), 10U);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(results.at(static_cast<std::size_t>(i)), i);
    std::vector<Task<int>> no_tasks;
    const std::vector<int> nothing = co_await when_all(std::move(no_tasks));
    EXPECT_TRUE(nothing.empty());
  }(loop));
}

TEST_F(WhenTest, AllThrowsTheFirstExceptionOnceAllHaveEnded) {
  loop.run([](Loop& self) -> Task<void> {
    int count = 0;
    std::string caught;
    const auto counting = [](Loop& on, int& total) -> Task<void> {
      co_await sleep_and_count(on, milliseconds(9), total);
    };
    auto all = when_all(throw_later(self, milliseconds(5), "second"), throw_later(self, milliseconds(2), "first"),
                        counting(self, count));
    try {
      co_await std::move(all);
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "first");
    EXPECT_EQ(count, 1);
  }(loop));
}

Task<int> until_stopped(Loop& loop, std::stop_token token, int& stopped) {
  const Result<void> slept = co_await loop.sleep(hours(1), token);
  if (!slept) ++stopped;
  co_return -1;
}

TEST_F(WhenTest, AnyGivesTheFirstAndStopsTheOthers) {
  loop.run([](Loop& self) -> Task<void> {
    std::stop_source stop;
    int stopped = 0;
    const Time start = self.now();
    const First<int, std::string, int> first = co_await when_any(stop, until_stopped(self, stop.get_token(), stopped),
                                                                 later(self, milliseconds(1), std::string("won")),
                                                                 until_stopped(self, stop.get_token(), stopped));
    EXPECT_EQ(first.index, 1U);
    EXPECT_EQ(std::get<1>(first.result), "won");
    EXPECT_EQ(stopped, 2);
    EXPECT_LT(self.now() - start, milliseconds(2));
  }(loop));
}

TEST_F(WhenTest, AnyThatEndsAtOnce) {
  loop.run([](Loop& self) -> Task<void> {
    std::stop_source stop;
    int stopped = 0;
    const First<void, int> first =
        co_await when_any(stop, []() -> Task<void> { co_return; }(), until_stopped(self, stop.get_token(), stopped));
    EXPECT_EQ(first.index, 0U);
    EXPECT_EQ(stopped, 1);
  }(loop));
}

TEST_F(WhenTest, AnyThrowsWhatTheFirstThrows) {
  loop.run([](Loop& self) -> Task<void> {
    std::stop_source stop;
    int stopped = 0;
    std::string caught;
    auto any =
        when_any(stop, throw_later(self, milliseconds(1), "first"), until_stopped(self, stop.get_token(), stopped));
    try {
      co_await std::move(any);
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "first");
    EXPECT_EQ(stopped, 1);
  }(loop));
}

// A loser that throws when it is requested to stop must not destroy the winner's result.
TEST_F(WhenTest, AnyDropsWhatLosersThrow) {
  loop.run([](Loop& self) -> Task<void> {
    std::stop_source stop;
    const auto loser = [](Loop& on, std::stop_token token) -> Task<int> {
      (void)co_await on.sleep(hours(1), token);
      throw std::runtime_error("stopped");
    };
    const First<int, int> first =
        co_await when_any(stop, loser(self, stop.get_token()), later(self, milliseconds(1), 5));
    EXPECT_EQ(first.index, 1U);
    EXPECT_EQ(std::get<1>(first.result), 5);
  }(loop));
}

TEST_F(WhenTest, DroppedItEndsItsTasks) {
  loop.run([](Loop& self) -> Task<void> {
    int count = 0;
    {
      Scope scope;
      scope.spawn([](Loop& on, int& total) -> Task<void> {
        co_await when_all(sleep_and_count(on, milliseconds(1), total), sleep_and_count(on, milliseconds(2), total));
      }(self, count));
    }
    co_await self.sleep(milliseconds(5));
    EXPECT_EQ(count, 0);
  }(loop));
}

TEST(Scope, JoinCompletesWhenTheScopeIsClearedOrDestroyed) {
  Loop loop(std::make_unique<exec::SimPoller>(), {});
  loop.run([](Loop& on) -> Task<void> {
    const auto sleep = [](Loop& self) -> Task<void> { co_await self.sleep(std::chrono::hours(1)); };
    const auto join = [](Scope& scope, int& count) -> Task<void> {
      co_await scope.join();
      ++count;
    };
    int joined = 0;
    Scope joiners;
    std::optional<Scope> scope(std::in_place);
    scope->spawn(sleep(on));
    joiners.spawn(join(*scope, joined));
    {
      const auto never_awaited = scope->join();
    }
    scope->clear();
    EXPECT_EQ(joined, 0) << "resumed by the loop, not by clear()";
    co_await on.sleep(std::chrono::milliseconds(1));
    EXPECT_EQ(joined, 1);
    scope->spawn(sleep(on));
    joiners.spawn(join(*scope, joined));
    scope.reset();
    co_await on.sleep(std::chrono::milliseconds(1));
    EXPECT_EQ(joined, 2);
    // The waiter is about to be resumed, and is destroyed before that.
    scope.emplace();
    scope->spawn(sleep(on));
    joiners.spawn(join(*scope, joined));
    scope.reset();
    joiners.clear();
    co_await on.sleep(std::chrono::milliseconds(1));
    EXPECT_EQ(joined, 2);
  }(loop));
}

TEST(ScopeDeathTest, ASecondJoinEndsTheProcessWithAText) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto two = []() -> Task<void> {
    Scope scope;
    Scope joiners;
    const auto join = [](Scope& of) -> Task<void> { co_await of.join(); };
    scope.spawn([]() -> Task<void> { co_await Loop::current()->sleep(std::chrono::seconds(1)); }());
    joiners.spawn(join(scope));
    joiners.spawn(join(scope));
    co_return;
  };
  EXPECT_DEATH(sync_wait(two()), "two coroutines wait in Scope::join");
}

}  // namespace
}  // namespace hawser
