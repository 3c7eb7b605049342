// Tasks, posts and timers. The simulated poller is used where the cost of the kernel is not of interest.
#include <benchmark/benchmark.h>

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "exec/sim_poller.h"
#include "exec/timer_wheel.h"
#include "hawser/loop.h"
#include "hawser/scope.h"

// Named, since GCC 12 warns of coroutines whose types lie in an anonymous namespace.
namespace hawser::bench::micro {

constexpr int tasks_at_once = 64;
constexpr std::size_t timers = 1024;

Task<int> give(int value) { co_return value; }

Task<void> await_ready_tasks(benchmark::State& state) {
  int sum = 0;
  for (auto _ : state) {
    sum += co_await give(1);
  }
  benchmark::DoNotOptimize(sum);
}

void task_ready(benchmark::State& state) {
  Loop loop(std::make_unique<exec::SimPoller>(), {});
  loop.run(await_ready_tasks(state));
}
BENCHMARK(task_ready)->Name("task/create_and_await");

struct NextTick {
  Loop& loop;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) const { loop.resume_soon(waiting); }
  void await_resume() const noexcept {}
};

Task<void> suspend_until(Loop& loop, const bool& ended) {
  while (!ended) {
    co_await NextTick{loop};
  }
}

Task<void> suspend_with_others(Loop& loop, benchmark::State& state) {
  bool ended = false;
  Scope others;
  for (int i = 1; i < tasks_at_once; ++i) others.spawn(suspend_until(loop, ended));
  for (auto _ : state) {
    co_await NextTick{loop};
  }
  ended = true;
  co_await others.join();
  state.SetItemsProcessed(state.iterations() * tasks_at_once);
}

// One tick in which each of 64 coroutines is suspended and resumed.
void task_switch(benchmark::State& state) {
  Loop loop(std::make_unique<exec::SimPoller>(), {});
  loop.run(suspend_with_others(loop, state));
}
BENCHMARK(task_switch)->Name("task/tick_of_64_suspended");

// A loop that runs on its own thread.
class LoopThread {
 public:
  explicit LoopThread(Wait wait) {
    std::promise<Loop*> started;
    auto loop = started.get_future();
    thread_ = std::thread([wait, &started] {
      Loop own({.wait = wait, .log = no_log()});
      started.set_value(&own);
      own.run();
    });
    loop_ = loop.get();
  }
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;
  ~LoopThread() {
    loop_->stop();
    thread_.join();
  }
  Loop& loop() noexcept { return *loop_; }

 private:
  Loop* loop_ = nullptr;
  std::thread thread_;
};

// A round trip between two threads that spin: two posts and two wake-ups.
void post_round_trip(benchmark::State& state) {
  LoopThread other(Wait::busy_poll);
  std::atomic<std::uint64_t> seen{0};
  std::uint64_t sent = 0;
  for (auto _ : state) {
    ++sent;
    other.loop().post([&seen, sent] { seen.store(sent, std::memory_order_release); });
    while (seen.load(std::memory_order_acquire) != sent) {
    }
  }
}
BENCHMARK(post_round_trip)->Name("post/to_spinning_thread_and_back")->UseRealTime();

// Posts in batches of 256, until the last has run.
void post_batch(benchmark::State& state) {
  constexpr std::uint64_t batch = 256;
  LoopThread other(Wait::busy_poll);
  std::atomic<std::uint64_t> ran{0};
  std::uint64_t posted = 0;
  for (auto _ : state) {
    for (std::uint64_t i = 0; i < batch; ++i) {
      other.loop().post([&ran] { ran.store(ran.load(std::memory_order_relaxed) + 1, std::memory_order_release); });
    }
    posted += batch;
    while (ran.load(std::memory_order_acquire) != posted) {
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(batch));
}
BENCHMARK(post_batch)->Name("post/batch_of_256")->UseRealTime();

void nothing(Timer&) noexcept {}

// The timer of a call's deadline: started, then stopped before it expires, among a thousand others.
void timer_start_stop(benchmark::State& state) {
  TimerWheel wheel(Time{});
  std::deque<Timer> others;
  for (std::size_t i = 0; i < timers; ++i) {
    others.emplace_back(&nothing);
    wheel.start(others.back(), Time{} + std::chrono::milliseconds(i));
  }
  Timer timer(&nothing);
  for (auto _ : state) {
    wheel.start(timer, Time{} + std::chrono::seconds(5));
    timer.stop();
  }
}
BENCHMARK(timer_start_stop)->Name("timer/start_stop");

// Starts a thousand timers within a millisecond and lets all expire.
void timer_fire(benchmark::State& state) {
  TimerWheel wheel(Time{});
  std::deque<Timer> all;
  for (std::size_t i = 0; i < timers; ++i) all.emplace_back(&nothing);
  Time now{};
  for (auto _ : state) {
    for (std::size_t i = 0; i < timers; ++i) wheel.start(all[i], now + std::chrono::microseconds(i));
    now += std::chrono::milliseconds(2);
    if (wheel.advance(now) != timers) {
      state.SkipWithError("not all timers fired");
      break;
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(timers));
}
BENCHMARK(timer_fire)->Name("timer/start_and_fire_1024");

}  // namespace hawser::bench::micro
