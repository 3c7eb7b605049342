#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "hawser/detail/state_owner.h"
#include "hawser/error.h"
#include "hawser/log.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "hawser/timer.h"

namespace hawser {

namespace exec {
class Poller;
class Source;
class TickEnd;
}  // namespace exec

class Runtime;

// How a loop waits when it has no work.
enum class Wait : std::uint8_t {
  spin,       // Polls for a bounded, adaptive time, then sleeps in the kernel.
  busy_poll,  // Never sleeps: the lowest latency, and one core fully used.
  event,      // Sleeps at once: the least processor time.
};

enum class PollerKind : std::uint8_t { automatic, epoll, io_uring };

struct LoopOptions {
  Wait wait = Wait::spin;
  // `automatic` is epoll, which was measured to be faster unless hundreds of connections are busy at once
  // (docs/decisions/0007). `io_uring` falls back to epoll if the kernel lacks a feature, which the log names.
  PollerKind poller = PollerKind::automatic;
  // Longest time of polling before the loop sleeps, with Wait::spin. Empty: four times the wake-up time, at least 50 us
  // and at most 1 ms. The loop measures the wake-up time now and then; it can be hundreds of us on virtual machines.
  std::optional<Duration> spin_max = {};
  unsigned offload_threads_max = 4;  // Threads for blocking work, started when they are first needed.
  // Blocking work that waits for a thread. The calls of one connection of a server use at most half of the free places,
  // and connections take turns. Lower it to refuse calls with `overloaded` early.
  std::size_t offload_queue_max = 64 * 1024;
  // A warning names a piece of work that has kept the loop from everything else for longer than this, and the method
  // that was called. At most one line a second. `forever`: none.
  Duration blocked_max = std::chrono::milliseconds(100);
  LogSink log = stderr_log();
  // Used by the clients and servers of this loop whose own options name no runtime. Null: Runtime::process_default().
  std::shared_ptr<Runtime> runtime = {};
};

class Loop;

namespace detail {

// Work to run on a loop's thread.
class Posted {
 public:
  Posted() noexcept = default;
  virtual ~Posted() = default;
  virtual void run() = 0;
  // The loop's last use of this object, after run() or in its place. An object that has another owner overrides it.
  virtual void release() noexcept { delete this; }
  Posted* next = nullptr;
};

// An object that must release a loop before the loop ends, such as a connected client.
class LoopUser {
 public:
  LoopUser() noexcept = default;
  LoopUser(const LoopUser&) = delete;
  LoopUser& operator=(const LoopUser&) = delete;
  // Called by the loop's destructor, after it has removed this user. Work that is posted or resumed from now on does
  // not run any more.
  virtual void on_loop_end() noexcept = 0;

 protected:
  ~LoopUser() = default;
};

class SleepAwaiter;
struct LoopAccess;
template <class F>
struct OffloadPosted;
struct LoopWork;

}  // namespace detail

// Runs coroutines, timers and the input of transports on the one thread that calls run(). Objects that belong to a loop
// are used from that thread only; any thread may call post() and stop(). While the loop runs, another thread that
// starts a timer, resumes a coroutine or sends ends the process with a message.
class Loop {
 public:
  explicit Loop(LoopOptions options = {});
  // The loop uses the caller's poller, such as the simulated one.
  Loop(std::unique_ptr<exec::Poller> poller, LoopOptions options);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // The loop that runs on the calling thread, or null.
  static Loop* current() noexcept;
  // The loop whose offloaded work the calling thread executes, or null.
  static Loop* offloading() noexcept;

  // Runs until stop(). Only one thread may run a loop at a time, and a task must not call this: both end the process
  // with a message.
  void run();
  // Makes run() return after the current tick. Any thread.
  void stop() noexcept;
  // Runs the loop until `task` has ended, and returns its result. A task must not call this. A stop() during this time
  // takes effect at the next run().
  template <class T>
  T run(Task<T> task);

  // Time at which the current tick began. It changes within a tick only by after().
  Time now() const noexcept { return now_; }
  // now() + duration, or Time::max() for `forever`. If the tick has lasted for 10 ms, now() is set to the clock before.
  Time after(Duration duration) const noexcept;

  // Runs `work` on this loop's thread. Posted work runs in the order of the calls. Any thread. An exception that leaves
  // `work` ends the process.
  template <class F>
  void post(F work) {
    struct Holder final : detail::Posted {
      explicit Holder(F&& f) : work_(std::move(f)) {}
      void run() override { work_(); }
      F work_;
    };
    post_owned(new Holder(std::move(work)));
  }
  void post(std::unique_ptr<detail::Posted> work);

  // Resumes `waiting` in this or the next tick.
  void resume_soon(std::coroutine_handle<> waiting);
  // Cancels the resume_soon() of a coroutine that is about to be destroyed.
  void forget(std::coroutine_handle<> waiting) noexcept;

  // `co_await loop.sleep(10ms)` suspends for that time. With a token, it fails with `cancelled` as soon as a stop
  // is requested on this thread.
  detail::SleepAwaiter sleep(Duration duration) noexcept;
  detail::SleepAwaiter sleep_until(Time when) noexcept;
  Task<Result<void>> sleep(Duration duration, std::stop_token token);

  // Runs `work`, which may block, on a thread of the loop's offload pool. The awaiter resumes on the loop with the
  // result. Fails with `overloaded` if offload_queue_max is reached. If the awaiter is destroyed before, `work` still
  // runs to its end.
  template <class F>
  Task<Result<std::invoke_result_t<std::decay_t<F>&>>> offload(F&& work);

  // Runs the work that has been posted, and nothing else. For destructors that must wait for other threads.
  void run_posted() { take_posted(); }

  // ---- For transports ----
  exec::Poller& poller() noexcept { return *poller_; }
  const LoopOptions& options() const noexcept { return options_; }
  // The loop polls `source` while it spins, and arms it before it sleeps.
  void add_source(exec::Source& source) noexcept;
  void remove_source(exec::Source& source) noexcept;
  std::size_t sources() const noexcept;
  // Calls `end` once, after the work of the current tick. There, transports send what the tick produced.
  void at_tick_end(exec::TickEnd& end) noexcept;
  void remove_tick_end(exec::TickEnd& end) noexcept;
  void log(LogLevel level, std::string_view component, std::string_view text) const noexcept;

 private:
  friend class Timer;
  friend struct detail::LoopAccess;
  friend struct detail::LoopWork;
  template <class F>
  friend struct detail::OffloadPosted;
  struct State;

  // offload() on behalf of `client`, such as a connection. Clients take turns, and each is bounded (see
  // LoopOptions::offload_queue_max). Stops of `token` are requested on this thread only. A stop before `work` has begun
  // removes it from the queue; the result is `cancelled` then.
  template <class F>
  Task<Result<std::invoke_result_t<F&>>> offload_for(const void* client, std::stop_token token, F work);
  // Loop's thread only. The coroutine that the loop has resumed and that has not returned to it; null if none.
  const void* resumed_frame() const noexcept;
  void add_user(detail::LoopUser& user);
  void remove_user(detail::LoopUser& user) noexcept;

  class Running;
  void post_owned(detail::Posted* work);  // post() of an object that the loop owns from now on.
  void check_thread() const noexcept;
  void run_root(Task<void> root);
  void tick();
  bool run_ready();
  void flush();
  void wait_for_work();
  bool spin_for_work(Time due);
  bool sleep_until_work(Time start, Time asleep, Time due);
  bool poll_after_work();
  void note_long_turn(Time turn, Time begin, Time end, const std::string* work);
  bool poll_once();
  bool take_posted() noexcept;
  std::uint64_t offload_posted(const void* client, std::unique_ptr<detail::Posted> work);
  bool withdraw_offloaded(const void* client, std::uint64_t ticket) noexcept;

  const LoopOptions options_;
  detail::StateOwner<exec::Poller> poller_;
  mutable Time now_{};
  mutable Duration advanced_{};        // Part of now_ by which after() has set it forward in this tick.
  const std::string* work_ = nullptr;  // Name of the method that was called last in this tick.
  detail::StateOwner<State> state_;
};

namespace detail {

class [[nodiscard("write `co_await`: without it, nothing waits")]] SleepAwaiter {
 public:
  SleepAwaiter(Loop& loop, Time when) noexcept : loop_(loop), when_(when) {}
  ~SleepAwaiter() {
    if (fired_ && !resumed_) loop_.forget(waiting_);
  }
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    fired_ = resumed_ = false;
    timer_.start(loop_, when_);
  }
  void await_resume() noexcept { resumed_ = true; }

 private:
  void on_time() noexcept {
    fired_ = true;
    loop_.resume_soon(waiting_);
  }

  Loop& loop_;
  Time when_;
  std::coroutine_handle<> waiting_;
  bool fired_ = false;
  bool resumed_ = false;
  MemberTimer<&SleepAwaiter::on_time> timer_{*this};
};

}  // namespace detail

inline detail::SleepAwaiter Loop::sleep(Duration duration) noexcept { return sleep_until(after(duration)); }
inline detail::SleepAwaiter Loop::sleep_until(Time when) noexcept { return detail::SleepAwaiter(*this, when); }

template <class T>
T Loop::run(Task<T> task) {
  // Declared here and not in the root coroutine, so that the result outlives it.
  std::optional<std::conditional_t<std::is_void_v<T>, std::monostate, T>> result;
  std::exception_ptr exception;
  run_root([](Task<T> inner, auto& out, std::exception_ptr& error) -> Task<void> {
    try {
      if constexpr (std::is_void_v<T>) {
        co_await std::move(inner);
        out.emplace();
      } else {
        out.emplace(co_await std::move(inner));
      }
    } catch (...) {
      error = std::current_exception();
    }
  }(std::move(task), result, exception));
  if (exception) std::rethrow_exception(exception);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Catches everything but tasks.
template <class T>
void sync_wait(T&&, LoopOptions = {}) {
  static_assert(sizeof(T) == 0,
                "hawser: sync_wait() takes a hawser::Task: await the call in a coroutine and pass that, or use a "
                "hawser::BlockingClient");
}

// Runs `task` on a temporary loop on the calling thread and returns its result.
template <class T>
T sync_wait(Task<T> task, LoopOptions options = {}) {
  Loop loop(std::move(options));
  return loop.run(std::move(task));
}

}  // namespace hawser

#include "hawser/detail/offload.h"
