#include "hawser/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

namespace hawser {
namespace {

class TaskTest : public testing::Test {
 protected:
  Loop loop{std::make_unique<exec::SimPoller>(), {}};
};

TEST_F(TaskTest, DoesNothingUntilItIsAwaited) {
  bool ran = false;
  {
    const auto set = [](bool& flag) -> Task<void> {
      flag = true;
      co_return;
    };
    Task<void> task = set(ran);
    EXPECT_TRUE(task.valid());
    EXPECT_FALSE(task.done());
    EXPECT_FALSE(ran);
  }
  EXPECT_FALSE(ran);
  EXPECT_FALSE(Task<int>().valid());
}

TEST_F(TaskTest, GivesItsValue) {
  loop.run([]() -> Task<void> {
    const auto text = []() -> Task<std::string> { co_return "text"; };
    const auto only_moved = []() -> Task<std::unique_ptr<int>> { co_return std::make_unique<int>(5); };
    EXPECT_EQ(co_await text(), "text");
    EXPECT_EQ(*co_await only_moved(), 5);
  }());
}

TEST_F(TaskTest, MovingATaskMovesItsCoroutine) {
  const auto one = []() -> Task<int> { co_return 1; };
  Task<int> first = one();
  Task<int> second = std::move(first);
  EXPECT_FALSE(first.valid());  // A moved-from task is empty by contract.
  Task<int> third;
  third = std::move(second);
  EXPECT_EQ(loop.run(std::move(third)), 1);
}

TEST_F(TaskTest, ExceptionsPassThroughEveryAwaiter) {
  const auto thrower = []() -> Task<int> {
    throw std::runtime_error("deep");
    co_return 1;
  };
  const auto middle = [](auto inner) -> Task<int> { co_return co_await inner() + 1; };
  loop.run([](auto failing, auto between) -> Task<void> {
    std::string caught;
    try {
      co_await between(failing);
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(caught, "deep");
  }(thrower, middle));
}

TEST_F(TaskTest, AnExceptionFromTheResultsConversionIsThrownToo) {
  struct Picky {
    explicit Picky(int) { throw std::runtime_error("picky"); }
    Picky(Picky&&) = default;
  };
  const auto make = []() -> Task<Picky> { co_return 1; };
  EXPECT_THROW(loop.run(make()), std::runtime_error);
}

struct Watched {
  explicit Watched(int& count) : alive(&count) { ++*alive; }
  Watched(const Watched& other) : alive(other.alive) { ++*alive; }
  Watched& operator=(const Watched&) = delete;
  ~Watched() { --*alive; }
  int* alive;
};

TEST_F(TaskTest, OwnsItsArgumentsAndFreesThemAtItsEnd) {
  int alive = 0;
  const auto hold = [](Watched held) -> Task<int> { co_return *held.alive; };
  {
    Task<int> never = hold(Watched(alive));
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0) << "a task that was never awaited";
  Task<int> task = hold(Watched(alive));
  EXPECT_EQ(loop.run(std::move(task)), 1);
  EXPECT_EQ(alive, 0);
}

TEST_F(TaskTest, DroppingATaskEndsItWhereItIsSuspended) {
  int alive = 0;
  bool passed = false;
  loop.run([](Loop& self, int& count, bool& flag) -> Task<void> {
    const auto inner = [](Loop& on, int& number) -> Task<void> {
      const Watched local(number);
      co_await on.sleep(std::chrono::hours(1));
    };
    const auto outer = [inner](Loop& on, int& number, bool& reached) -> Task<void> {
      const Watched local(number);
      co_await inner(on, number);
      reached = true;
    };
    {
      Scope scope;
      scope.spawn(outer(self, count, flag));
      EXPECT_EQ(count, 2);
    }
    EXPECT_EQ(count, 0);
    co_await self.sleep(std::chrono::hours(2));
  }(loop, alive, passed));
  EXPECT_FALSE(passed);
}

Task<int> count_down(int from) {
  if (from == 0) co_return 0;
  co_return co_await count_down(from - 1) + 1;
}

TEST_F(TaskTest, AThousandDeep) { EXPECT_EQ(loop.run(count_down(1000)), 1000); }

// Counts the objects that exist, so that one that is destroyed twice is noticed.
struct Counted {
  explicit Counted(int& number) : existing(&number) { ++*existing; }
  Counted(const Counted& other) : existing(other.existing) { ++*existing; }
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --*existing; }
  int* existing;
};
struct Holder {
  Counted counted;
  int number = 0;
};
Task<int> number_of(Holder holder) { co_return holder.number; }
Task<int> number_in(const Holder& holder) { co_return holder.number; }
template <class F>
Task<int> result_of(F work) {
  co_return work();
}

// GCC before 13 destroyed the temporaries of these expressions twice.
TEST_F(TaskTest, TemporariesOfAnAwaitAreDestroyedOnce) {
  int existing = 0;
  loop.run([](int& count) -> Task<void> {
    EXPECT_EQ(co_await number_of(Holder{.counted = Counted(count), .number = 1}), 1);
    EXPECT_EQ(co_await number_of({.counted = Counted(count), .number = 2}), 2);
    EXPECT_EQ(co_await number_in(Holder{.counted = Counted(count), .number = 3}), 3);
    EXPECT_EQ(co_await result_of([counted = Counted(count)] { return *counted.existing > 0 ? 4 : 0; }), 4);
  }(existing));
  EXPECT_EQ(existing, 0);
}

[[gnu::noinline]] std::uintptr_t stack_here() { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

// Returns how much stack `depth` tasks use that await each other and then end one after the other.
Task<std::uintptr_t> stack_at(int depth, std::uintptr_t& at_end) {
  if (depth == 0) co_return stack_here();
  const std::uintptr_t deepest = co_await stack_at(depth - 1, at_end);
  at_end = std::min(at_end, stack_here());
  co_return deepest;
}

// The compiler starts and ends a task by a jump and not by a call, so depth uses no stack. Without optimisation and
// under sanitizers, the compiler may use calls; then this test would overflow the stack.
TEST_F(TaskTest, AHundredThousandDeepAndInARow) {
  std::uintptr_t lowest = UINTPTR_MAX;
  const std::uintptr_t top = loop.run(stack_at(0, lowest));
  const std::uintptr_t deepest = std::min(loop.run(stack_at(100, lowest)), lowest);
  if (top > deepest && top - deepest > 100 * sizeof(void*)) GTEST_SKIP() << "this build makes calls of the jumps";
  EXPECT_EQ(loop.run(count_down(100'000)), 100'000);
  const auto rows = []() -> Task<int> {
    const auto one = []() -> Task<int> { co_return 1; };
    int sum = 0;
    for (int i = 0; i < 100'000; ++i) sum += co_await one();
    co_return sum;
  };
  EXPECT_EQ(loop.run(rows()), 100'000);
}

}  // namespace
}  // namespace hawser
