#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "exec/blocked_turns.h"
#include "exec/late_timers.h"
#include "exec/live_loops.h"
#include "exec/long_turns.h"
#include "exec/loop_memory.h"
#include "exec/loop_statistics.h"
#include "exec/loop_work.h"
#include "exec/mailbox.h"
#include "exec/make_poller.h"
#include "exec/offload_pool.h"
#include "exec/ready_queue.h"
#include "exec/source_turns.h"
#include "exec/spin_limit.h"
#include "exec/timer_wheel.h"
#include "exec/work_timer.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/transport/poller.h"

namespace hawser {

// The parts of a loop besides its poller, its options and its time.
struct Loop::State {
  State(Loop& loop, const exec::Poller& poller, Time origin, const LoopOptions& options)
      : live(loop),
        wheel(origin),
        memory(origin, poller.real_time()),
        spin_limit(options.spin_max),
        blocked(options.blocked_max),
        random(exec::seed_of(poller)),
        offload(new exec::OffloadPool(std::max(1U, options.offload_threads_max), options.offload_queue_max, &loop)) {}

  // A list of objects that contain the links of the list.
  template <class T>
  struct List {
    bool empty() const noexcept { return first == nullptr; }
    bool contains(const T& one) const noexcept { return one.previous_ != nullptr || first == &one; }
    void add(T& one) noexcept {
      one.previous_ = last;
      (last == nullptr ? first : last->next_) = &one;
      last = &one;
      ++size;
    }
    void remove(T& one) noexcept {
      (one.previous_ == nullptr ? first : one.previous_->next_) = one.next_;
      (one.next_ == nullptr ? last : one.next_->previous_) = one.previous_;
      one.next_ = one.previous_ = nullptr;
      --size;
    }

    T* first = nullptr;
    T* last = nullptr;
    std::size_t size = 0;
  };

  // True while a thread of this process runs the loop.
  bool runs() const noexcept {
    return thread.load(std::memory_order_relaxed) != nullptr && process.load(std::memory_order_relaxed) == getpid();
  }
  // Returns true if the loop has work without asking sources or the poller, or if its run ends.
  bool busy() const noexcept {
    return !ready.empty() || !tick_ends.empty() || !mailbox.empty() ||
           (stoppable && stopping.load(std::memory_order_relaxed)) || (root != nullptr && root->empty());
  }

  bool holds_timers(Time now) noexcept {
    return late_timers.hold(wheel.due(now) ? wheel.next().value_or(now) : now, now);
  }

  // Returns memory that the loop does not use. A trim of the allocator takes longer than a loop may be blocked.
  void release_idle_memory(Time now) noexcept {
    const IdleMemory::Released released = memory.release(now);
    if (released == IdleMemory::Released::part) return;
    ready.shrink();
    if (released != IdleMemory::Released::all_trim_due) return;
    struct Trim final : detail::Posted {
      void run() noexcept override { AllocatorTrim::of_process().run(); }
    };
    try {
      // One that still waits for a thread must not take a second place from the application.
      if (trim != 0) offload->withdraw(nullptr, trim);
      trim = 0;
      trim = offload->submit(nullptr, std::make_unique<Trim>());
    } catch (const std::bad_alloc&) {
      return;  // It is due again after AllocatorTrim::pause_min, as if the pool had refused it.
    }
  }

  const exec::LiveLoop live;  // Declared first: the loop exists for what the other members destroy.
  TimerWheel wheel;
  exec::LateTimers late_timers;
  exec::LongTurns long_turns;
  exec::LoopMemory memory;
  exec::OffloadPool::Ticket trim = 0;  // Identifies the last trim of the allocator; 0: none.
  exec::ReadyQueue ready;
  List<exec::TickEnd> tick_ends;
  List<exec::Source> sources;
  exec::Source* next_source = nullptr;  // The source that poll_once() polls next.
  exec::SourceTurns turns;
  exec::SpinLimit spin_limit;
  Duration spin = spin_limit.get();
  std::atomic<bool> sleeping{false};
  std::atomic<bool> stopping{false};
  std::atomic<const void*> thread{nullptr};  // The thread that runs the loop, as the address of its current_loop.
  std::atomic<pid_t> process{0};             // Process of that thread. In a child by fork(), no thread runs the loop.
  exec::BlockedTurns blocked;
  Random random;  // The numbers of LoopAccess::random().
  std::vector<detail::LoopUser*> users;
  Time started{};    // Time at which the loop was last started.
  Duration pause{};  // Time for which it did not run before that.
  exec::TickRecord record;
  // Time of the work that sources did in the previous poll, if the loop was spinning, or until after() has set the
  // time forward.
  Duration polled_work{};
  // The timers of work wait for a reading of the clock.
  struct WorkTimers {
    void notify(exec::WorkTimer*& list, Time now) noexcept {
      while (exec::WorkTimer* const timer = list) {
        list = std::exchange(timer->next_, nullptr);
        timer->on_clock(now);
      }
    }
    exec::WorkTimer* next = nullptr;     // For the next reading.
    exec::WorkTimer* polling = nullptr;  // The poller reads the clock for them, and then delivers input.
  };
  WorkTimers timers;
  bool stoppable = false;       // True within run(), which ends by stop(); run(task) does not.
  const Scope* root = nullptr;  // Within run(task): the scope of the task. The run ends when it is empty.
  // Who waits when there is no work.
  enum class Waiter : std::uint8_t {
    self,      // This loop, in its poller.
    other,     // Another event loop, which calls LoopWork::run_ready(). This loop has work.
    other_now  // The same, and this loop has no work until the poller has an event or is woken, or until `due`.
  };
  struct Waiting {
    Waiter by = Waiter::self;
    Time due{};  // With Waiter::other_now: the time of the next timer, or Time::max().
  };
  Waiting waiting;
  exec::Mailbox mailbox;
  // Declared last: its threads post to the mailbox until they are joined.
  const std::unique_ptr<exec::OffloadPool, exec::OffloadPool::Deleter> offload;
};

}  // namespace hawser
