#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/try.h"
#include "exec/sim_poller.h"
#include "hawser/loop.h"
#include "hawser/task.h"

// CO_TRY in coroutines that are suspended within its expression.
namespace hawser {
namespace {

class CoTryTest : public testing::Test {
 protected:
  static Error refusal() { return Error::of_transport(ErrorCode::unavailable, "the device of this test is absent"); }

  // Suspends twice: where the task is awaited, and on the loop's clock.
  static Task<Result<std::string>> name(bool good) {
    co_await Loop::current()->sleep(std::chrono::milliseconds(1));
    if (!good) co_return fail(refusal());
    co_return "a name that is too long for the string itself to hold";
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {}};
};

TEST_F(CoTryTest, ChecksWhatWasAwaited) {
  int steps = 0;
  const auto run = [](bool good, int& passed) -> Task<Result<void>> {
    CO_TRY(co_await name(good));
    ++passed;
    CO_TRY(co_await name(good));
    ++passed;
    co_return Result<void>();
  };
  EXPECT_TRUE(loop.run(run(true, steps)));
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(loop.run(run(false, steps)).error(), refusal());
  EXPECT_EQ(steps, 2);
}

TEST_F(CoTryTest, DeclaredValuesLiveThroughLaterSuspensions) {
  const auto run = [](bool good) -> Task<Result<std::string>> {
    CO_TRY(std::string&& first, co_await name(true));
    auto naming = name(true);
    CO_TRY(const std::string& second, co_await std::move(naming));
    CO_TRY(const std::string third, co_await name(good));
    first += '/';
    co_await Loop::current()->sleep(std::chrono::milliseconds(1));
    co_return std::move(first) + second + '/' + third;
  };
  const std::string one = *loop.run(name(true));
  EXPECT_EQ(loop.run(run(true)), one + '/' + one + '/' + one);
  EXPECT_EQ(loop.run(run(false)).error(), refusal());
}

// The value is moved once if a name is declared for it, and not at all if a reference is.
TEST_F(CoTryTest, AReferenceDoesNotMoveTheValue) {
  struct Value {
    explicit Value(int& moves_of_all) : moves(&moves_of_all) {}
    Value(Value&& other) noexcept : moves(other.moves) { ++*moves; }
    int* moves;
  };
  int moves = 0;
  const auto make = [](int& counted) -> Task<Result<Value>> { co_return Result<Value>(std::in_place, counted); };
  const auto count = [&](bool reference) {
    moves = 0;
    loop.run([](auto maker, int& counted, bool refer) -> Task<Result<void>> {
          if (refer) {
            CO_TRY(Value&& value, co_await maker(counted));
            EXPECT_EQ(value.moves, &counted);
          } else {
            CO_TRY(const Value value, co_await maker(counted));
            EXPECT_EQ(value.moves, &counted);
          }
          co_return Result<void>();
        }(make, moves, reference))
        .value();
    return moves;
  };
  const int of_the_task = count(true);
  EXPECT_EQ(count(false), of_the_task + 1);
}

}  // namespace
}  // namespace hawser
