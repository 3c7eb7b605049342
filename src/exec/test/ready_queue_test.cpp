#include "exec/ready_queue.h"

#include <gtest/gtest.h>

#include <coroutine>
#include <cstddef>
#include <vector>

namespace hawser::exec {
namespace {

void add_many(ReadyQueue& queue, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) queue.add(std::noop_coroutine());
}

TEST(ReadyQueue, KeepsTheRoomThatItUses) {
  ReadyQueue queue;
  EXPECT_FALSE(queue.shrinkable());
  for (int period = 0; period < 3; ++period) {
    for (int batch = 0; batch < 2; ++batch) {
      add_many(queue, 10 * ReadyQueue::reserved);
      EXPECT_TRUE(queue.run());
    }
    queue.shrink();
    EXPECT_TRUE(queue.shrinkable()) << "period " << period;
  }
}

TEST(ReadyQueue, ReturnsTheRoomOfABurst) {
  ReadyQueue queue;
  for (int batch = 0; batch < 2; ++batch) {
    add_many(queue, 10 * ReadyQueue::reserved);
    EXPECT_TRUE(queue.run());
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
  EXPECT_TRUE(queue.run());
  add_many(queue, 10 * ReadyQueue::reserved);
  EXPECT_TRUE(queue.run());
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

}  // namespace
}  // namespace hawser::exec
