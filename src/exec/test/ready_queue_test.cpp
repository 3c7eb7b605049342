#include "exec/ready_queue.h"

#include <gtest/gtest.h>

#include <coroutine>
#include <cstddef>
#include <ctime>
#include <vector>

namespace hawser::exec {
namespace {

void add_many(ReadyQueue& queue, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) queue.add(std::noop_coroutine());
}

void run_all(ReadyQueue& queue) {
  while (!queue.empty()) EXPECT_TRUE(queue.run());
}

TEST(ReadyQueue, KeepsTheRoomThatItUses) {
  ReadyQueue queue;
  EXPECT_FALSE(queue.shrinkable());
  for (int period = 0; period < 3; ++period) {
    for (int batch = 0; batch < 2; ++batch) {
      add_many(queue, 10 * ReadyQueue::reserved);
      run_all(queue);
    }
    queue.shrink();
    EXPECT_TRUE(queue.shrinkable()) << "period " << period;
  }
}

TEST(ReadyQueue, ReturnsTheRoomOfABurst) {
  ReadyQueue queue;
  for (int batch = 0; batch < 2; ++batch) {
    add_many(queue, 10 * ReadyQueue::reserved);
    run_all(queue);
  }
  queue.shrink();
  EXPECT_TRUE(queue.shrinkable()) << "the period of the burst";
  add_many(queue, 1);
  EXPECT_TRUE(queue.run());
  queue.shrink();
  EXPECT_FALSE(queue.shrinkable());
  EXPECT_FALSE(queue.run()) << "the queue is empty";
}

struct Counted {
  struct promise_type {
    Counted get_return_object() noexcept { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept {}
  };
  std::coroutine_handle<promise_type> handle;
};

// Coroutines that are ready when the queue shrinks are resumed, in order, except those that were forgotten.
TEST(ReadyQueue, ShrinksWithCoroutines) {
  std::vector<int> resumed;
  const auto coroutine = [](std::vector<int>& list, int number) -> Counted {
    list.push_back(number);
    co_return;
  };
  ReadyQueue queue;
  add_many(queue, 10 * ReadyQueue::reserved);
  run_all(queue);
  add_many(queue, 10 * ReadyQueue::reserved);
  run_all(queue);
  std::vector<Counted> made;
  for (int i = 0; i < 5; ++i) made.push_back(coroutine(resumed, i));
  for (const Counted& one : made) queue.add(one.handle);
  queue.forget(made[1].handle);
  queue.shrink();
  queue.shrink();
  EXPECT_FALSE(queue.shrinkable());
  queue.forget(made[3].handle);
  EXPECT_TRUE(queue.run());
  EXPECT_EQ(resumed, (std::vector<int>{0, 2, 4}));
  for (const Counted& one : made) one.handle.destroy();
}

// Many coroutines take several runs, in order; what becomes ready meanwhile comes after them.
TEST(ReadyQueue, ResumesABoundedNumberInOneRun) {
  constexpr int count = static_cast<int>(2 * ReadyQueue::resumed_at_once + 10);
  std::vector<int> resumed;
  const auto coroutine = [](std::vector<int>& list, int number) -> Counted {
    list.push_back(number);
    co_return;
  };
  ReadyQueue queue;
  std::vector<Counted> made;
  for (int i = 0; i < count; ++i) made.push_back(coroutine(resumed, i));
  for (const Counted& one : made) queue.add(one.handle);
  EXPECT_TRUE(queue.run());
  EXPECT_EQ(resumed.size(), ReadyQueue::resumed_at_once);
  EXPECT_FALSE(queue.empty());
  EXPECT_EQ(queue.resumed_frame(), nullptr) << "nothing runs";
  const Counted late = coroutine(resumed, count);
  queue.add(late.handle);
  queue.forget(made[ReadyQueue::resumed_at_once].handle);
  queue.shrink();
  for (int runs = 0; !queue.empty(); ++runs) {
    ASSERT_LT(runs, 4);
    EXPECT_TRUE(queue.run());
  }
  std::vector<int> expected;
  for (int i = 0; i <= count; ++i) {
    if (i != static_cast<int>(ReadyQueue::resumed_at_once)) expected.push_back(i);
  }
  EXPECT_EQ(resumed, expected);
  for (const Counted& one : made) one.handle.destroy();
  late.handle.destroy();
}

// A condition queues those that wait in the opposite order. Searching for each one took minutes.
TEST(ReadyQueue, ForgetsManyInEitherOrder) {
  std::vector<std::byte> addresses(300'000);
  for (const bool opposite : {false, true}) {
    ReadyQueue queue;
    for (std::byte& one : addresses) queue.add(std::coroutine_handle<>::from_address(&one));
    const std::clock_t start = std::clock();
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      std::byte& one = addresses[opposite ? addresses.size() - 1 - i : i];
      queue.forget(std::coroutine_handle<>::from_address(&one));
    }
    EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC) << "time of the processor";
    run_all(queue);  // No coroutine is at these addresses.
  }
}

}  // namespace
}  // namespace hawser::exec
