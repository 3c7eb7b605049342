#include "hawser/loop.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <new>
#include <optional>
#include <string>

#include "base/line_trace.h"
#include "base/misuse.h"
#include "base/processor.h"
#include "exec/live_loops.h"
#include "exec/loop_state.h"
#include "exec/make_poller.h"
#include "exec/work_timer.h"
#include "hawser/detail/loop_access.h"
#include "hawser/scope.h"
#include "hawser/trace.h"
#include "hawser/transport/poller.h"

namespace hawser {
namespace {

thread_local Loop* current_loop = nullptr;

// Limit of the polls for earlier input before run(task) starts its task.
constexpr unsigned polls_before_task = 16;

// The spin time is halved after each sleep that spinning could not avoid, down to this value. It returns to its limit
// as soon as a sleep is shorter than the limit. (The kernel's halt polling has the same policy.)
constexpr Duration spin_least = std::chrono::microseconds(2);

// A coroutine may outlive its loop. Its awaitables then call the functions that test this.
bool has_ended(const Loop& loop) noexcept { return current_loop != &loop && !exec::is_live_loop(loop); }

Duration timer_slack() noexcept { return Duration(std::max(prctl(PR_GET_TIMERSLACK), 0)); }

// Makes a loop the thread's current one during its own lifetime, also when an exception ends the run.
class Current {
 public:
  explicit Current(Loop& loop) noexcept : outer_(std::exchange(current_loop, &loop)) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() { current_loop = outer_; }

 private:
  Loop* const outer_;
};

}  // namespace

// Marks the loop as running on this thread, and sets its time.
class Loop::Running {
 public:
  explicit Running(Loop& loop) noexcept
      : loop_(loop), state_(*loop.state_), thread_(loop.state_->thread), current_(loop) {
    if (!thread_.compare_exchange_strong(outer_, &current_loop, std::memory_order_acquire) && outer_ != &current_loop &&
        state_.runs()) {
      misuse("Loop::run() is called while another thread runs the loop; use Loop::post()");
    }
    exec::watch_exit();
    thread_.store(&current_loop, std::memory_order_relaxed);
    loop.state_->process.store(getpid(), std::memory_order_relaxed);
    const Time last = std::exchange(loop.now_, loop.poller_->now());
    state_.started = loop.now_;
    state_.polled_work = loop.advanced_ = Duration::zero();
    // The last tick of an EmbeddedLoop may have left work, which is sent now.
    state_.long_turns.end(last, state_.waiting.by == State::Waiter::other ? loop.now_ : last);
    state_.pause = loop.now_ - last;
    state_.late_timers.polled(false);  // A poll of the last run may be long ago.
    outer_root_ = std::exchange(state_.root, nullptr);
    if (outer_ == nullptr) state_.memory.begin();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    if (state_.timers.next != nullptr) state_.timers.notify(state_.timers.next, loop_.poller_->now());
    state_.root = outer_root_;
    if (outer_ == nullptr) state_.memory.end();
    thread_.store(outer_, std::memory_order_release);
  }

 private:
  Loop& loop_;
  State& state_;
  std::atomic<const void*>& thread_;
  const void* outer_ = nullptr;        // The address of current_loop if this thread already runs the loop.
  const Scope* outer_root_ = nullptr;  // State::root of that run.
  const Current current_;
};

// Apart from its callers, whose registers it would take up.
[[gnu::noinline]] void Loop::check_thread() const noexcept {
  if (current_loop == this) return;
  if (has_ended(*this)) return;
  const void* const thread = state_->thread.load(std::memory_order_relaxed);
  // A use between two calls of EmbeddedLoop::poll_once() may need the next one.
  if (thread == nullptr && state_->waiting.by == State::Waiter::other_now) poller_->wake();
  if (thread == &current_loop || !state_->runs()) return;
  misuse(
      "a coroutine, timer, connection or primitive of a loop is used by a thread other than the one that runs the "
      "loop; use Loop::post() to do it there");
}

Loop::Loop(LoopOptions options) : Loop(exec::make_poller(options), options) {}

Loop::Loop(std::unique_ptr<exec::Poller> poller, LoopOptions options)
    : options_(std::move(options)),
      poller_(poller.release()),
      now_(poller_->now()),
      state_(new State(*this, *poller_, now_, options_)) {}

Loop::~Loop() {
  if (state_->runs() && !exec::process_exits())
    misuse(
        "a Loop or an EmbeddedLoop was destroyed while it runs, for example by its own task: destroy it behind run()");
  const Current current(*this);
  while (!state_->users.empty()) {
    detail::LoopUser& user = *state_->users.back();
    state_->users.pop_back();
    user.on_loop_end();
  }
  while (!state_->sources.empty()) remove_source(*state_->sources.first);
  while (!state_->tick_ends.empty()) remove_tick_end(*state_->tick_ends.first);
}

Loop* Loop::current() noexcept { return current_loop; }

Loop* Loop::offloading() noexcept { return exec::OffloadPool::owner_of_this_thread(); }

Duration detail::LoopAccess::pause_since(const Loop& loop, Time when) noexcept {
  return when < loop.state_->started ? loop.state_->pause : Duration::zero();
}

void detail::LoopWork::set_traced_work(Loop& loop, const std::string& name, Bytes metadata, TraceOf trace_of) noexcept {
  loop.work_ = &loop.state_->blocked.begin_call(name, metadata, trace_of);
}

void detail::LoopWork::set_blocked_max(Loop& loop, Duration blocked_max) noexcept {
  loop.state_->blocked.set_limit(blocked_max);
}

Duration detail::LoopWork::lateness(const Loop& loop) noexcept {
  const Duration late = loop.poller_->now() - loop.now_;
  return late < exec::LongTurns::long_min ? Duration::zero() : late;
}

Duration detail::LoopWork::turn_length(const Loop& loop, Time begin) noexcept {
  return loop.state_->long_turns.length(begin);
}

Duration detail::LoopWork::run_ready(Loop& loop, unsigned ticks_max) {
  using Waiter = Loop::State::Waiter;
  Loop::State& state = *loop.state_;
  if (current_loop == &loop) misuse("EmbeddedLoop::poll_once() is called by a task of its own loop");
  const Loop::Running running(loop);
  // The other event loop waited in the place of this one, and is late if it waited beyond the timer.
  if (std::exchange(state.waiting.by, Waiter::other) == Waiter::other_now) {
    state.pause = std::clamp(loop.now_ - state.waiting.due, Duration::zero(), state.pause);
  }
  state.sleeping.store(false, std::memory_order_relaxed);
  for (unsigned ticks = 0; ticks < ticks_max && state.waiting.by == Waiter::other; ++ticks) loop.tick();
  if (state.waiting.by == Waiter::other) return Duration::zero();
  return state.waiting.due == Time::max() ? forever
                                          : std::max(state.waiting.due - loop.poller_->now(), Duration::zero());
}

exec::LoopStatistics detail::LoopAccess::statistics(const Loop& loop) {
  const Loop::State& state = *loop.state_;
  exec::LoopStatistics all = state.record.read();
  const exec::OffloadPool::Caches offload = state.offload->caches();
  all.offload_threads = offload.threads;
  all.offload_cached = offload.bytes;
  all.cached = state.memory.read();
  return all;
}

void detail::LoopAccess::time_work(Loop& loop, exec::WorkTimer& timer) noexcept {
  timer.next_ = std::exchange(loop.state_->timers.next, &timer);
}

std::uint64_t detail::LoopAccess::random(Loop& loop) noexcept { return loop.state_->random.next(); }

void detail::LoopAccess::give_way(Loop& loop) noexcept { loop.state_->spin = Duration::zero(); }

void detail::LoopAccess::stop_timing(Loop& loop, exec::WorkTimer& timer) noexcept {
  for (exec::WorkTimer** list : {&loop.state_->timers.next, &loop.state_->timers.polling}) {
    for (exec::WorkTimer** at = list; *at != nullptr; at = &(*at)->next_) {
      if (*at != &timer) continue;
      *at = std::exchange(timer.next_, nullptr);
      return;
    }
  }
}

Time Loop::after(Duration duration) const noexcept {
  if (duration == forever || has_ended(*this)) return Time::max();
  Time now = now_;
  if (const Duration late = detail::LoopWork::lateness(*this); late != Duration::zero()) [[unlikely]] {
    now += late;
    if (current_loop == this) {
      advanced_ = state_->long_turns.advance(now_, now);
      state_->polled_work += late;
      now_ = now;
    }
  }
  return duration < Time::max() - now ? now + duration : Time::max();
}

void Loop::add_user(detail::LoopUser& user) {
  check_thread();
  state_->users.push_back(&user);
}

void Loop::remove_user(detail::LoopUser& user) noexcept {
  if (has_ended(*this)) return;
  check_thread();
  std::erase(state_->users, &user);
}

void Timer::start(Loop& loop, Time when) noexcept {
  loop.check_thread();
  loop.state_->wheel.start(*this, when);
}

void Loop::run() {
  const Running running(*this);
  state_->stoppable = true;
  while (!state_->stopping.load(std::memory_order_acquire)) tick();
  state_->stoppable = false;
  state_->stopping.store(false, std::memory_order_relaxed);
  flush();
}

void Loop::run_root(Task<void> root) {
  const Running running(*this);
  // Input that has arrived since the last run is delivered first, so that the task learns the ends of its connections
  // before it sends. An end may be behind other input.
  for (unsigned turns = 0; turns < polls_before_task && !state_->users.empty(); ++turns) {
    state_->turns.let_poller();  // The poller has a turn, too.
    if (!poll_once()) break;
  }
  {
    Scope scope;
    scope.spawn(std::move(root));
    for (state_->root = &scope; !scope.empty();) tick();
    state_->root = nullptr;
  }
  flush();
}

void Loop::stop() noexcept {
  state_->stopping.store(true, std::memory_order_release);
  poller_->wake();
}

void Loop::post_owned(detail::Posted* work) { post(std::unique_ptr<detail::Posted>(work)); }

void Loop::post(std::unique_ptr<detail::Posted> work) {
  state_->mailbox.put(std::move(work));
  // One wake-up is sufficient for all work that is posted until the loop sleeps again.
  if (state_->sleeping.load(std::memory_order_seq_cst) && state_->sleeping.exchange(false, std::memory_order_seq_cst)) {
    poller_->wake();
  }
}

std::uint64_t Loop::offload_posted(const void* client, std::unique_ptr<detail::Posted> work) {
  if (!poller_->real_time()) {
    // In a simulation the work runs on the loop's thread, so that the order of events depends on the seed alone.
    post(std::move(work));
    return 1;
  }
  return state_->offload->submit(client, std::move(work));
}

bool Loop::withdraw_offloaded(const void* client, std::uint64_t ticket) noexcept {
  if (has_ended(*this)) return false;
  return state_->offload->withdraw(client, ticket);
}

void Loop::resume_soon(std::coroutine_handle<> waiting) {
  if (current_loop != this) [[unlikely]] {
    if (has_ended(*this)) return;
    check_thread();
  }
  state_->ready.add(waiting);
}

void Loop::forget(std::coroutine_handle<> waiting) noexcept {
  if (has_ended(*this)) return;
  check_thread();
  state_->ready.forget(waiting);
}

const void* Loop::resumed_frame() const noexcept { return state_->ready.resumed_frame(); }

void Loop::add_source(exec::Source& source) noexcept {
  check_thread();
  state_->sources.add(source);
}

void Loop::remove_source(exec::Source& source) noexcept {
  if (has_ended(*this) || !state_->sources.contains(source)) return;
  check_thread();
  if (state_->next_source == &source) state_->next_source = source.next_;
  state_->sources.remove(source);
}

std::size_t Loop::sources() const noexcept { return state_->sources.size; }

void Loop::at_tick_end(exec::TickEnd& end) noexcept {
  if (std::exchange(end.queued_, true)) return;
  if (current_loop != this) [[unlikely]]
    check_thread();
  state_->tick_ends.add(end);
}

void Loop::remove_tick_end(exec::TickEnd& end) noexcept {
  if (std::exchange(end.queued_, false) && !has_ended(*this)) state_->tick_ends.remove(end);
}

void Loop::log(LogLevel level, std::string_view component, std::string_view text) const noexcept {
  options_.log(level, component, text);
}

void Loop::tick() {
  if (state_->memory.due(now_)) [[unlikely]]
    state_->release_idle_memory(now_);
  bool worked = take_posted();
  worked |= run_ready();
  const bool held = state_->holds_timers(now_);
  if (!held) worked |= state_->wheel.advance(now_) != 0;
  worked |= run_ready();
  flush();
  if (held) state_->turns.let_poller();  // The poller has a turn, too.
  // A loop that sleeps at once asks the poller only once: a sleep ends immediately if there is input.
  if (held || state_->busy() || (worked && options_.wait != Wait::event)) {
    poll_after_work();
  } else {
    wait_for_work();
  }
}

// Posted work must not throw: the rest of the batch would be lost.
bool Loop::take_posted() noexcept {
  if (state_->mailbox.empty()) return false;
  for (detail::Posted* work = state_->mailbox.take(); work != nullptr;) {
    detail::Posted* const one = std::exchange(work, work->next);
    one->run();
    one->release();
  }
  return true;
}

bool Loop::run_ready() { return state_->ready.run(); }

// An end of a tick may request another one. This is bounded, since each connection sends all of its data. Each end
// leaves the list before it runs: it may destroy itself or others, and a flush within this one runs the remaining ends.
void Loop::flush() {
  while (!state_->tick_ends.empty()) {
    exec::TickEnd& end = *state_->tick_ends.first;
    end.queued_ = false;
    state_->tick_ends.remove(end);
    end.on_tick_end();
  }
}

// Polls all sources, and the poller when it is its turn. Sets the time. Returns true if there was any event.
bool Loop::poll_once() {
  bool found = false;
  // A source may add or remove sources while it is polled.
  for (exec::Source* source = state_->sources.first; source != nullptr; source = state_->next_source) {
    state_->turns.count_poll();
    state_->next_source = source->next_;
    found |= source->poll();
  }
  State::WorkTimers& timers = state_->timers;
  if (state_->turns.end_round(!state_->sources.empty())) {
    timers.polling = std::exchange(timers.next, nullptr);
    found |= poller_->wait(Duration::zero(), now_) != 0;
    state_->late_timers.polled(!found);
    timers.notify(timers.polling, now_);
  } else {
    now_ = poller_->now();
    timers.notify(timers.next, now_);
  }
  return found;
}

// The first poll after work. The clock that it reads shows how long the work took, including input that the previous
// poll delivered.
bool Loop::poll_after_work() {
  const Time turn = now_;
  const Time begin = turn - std::exchange(state_->polled_work, Duration::zero());
  const std::string* const before = std::exchange(work_, nullptr);
  state_->blocked.end_turn();
  const bool found = poll_once();
  // Sources deliver their input before the clock is read, a poller after that.
  const std::string* const work = state_->sources.empty() || work_ == nullptr ? before : work_;
  if (state_->blocked.notes(now_ - begin)) [[unlikely]] {
    note_long_turn(turn, begin, now_, work);
  } else {
    state_->record.add(now_ - begin, work);
  }
  return found;
}

// The turn ended at `end`, or before that, when the poll began to deliver input that has taken long already.
void Loop::note_long_turn(Time turn, Time begin, Time end, const std::string* work) {
  const Time over = state_->long_turns.end(turn, end);
  advanced_ = state_->polled_work = end - over;
  const Duration blocked = over - begin;
  state_->record.add(blocked, work);
  if (!state_->blocked.reports(blocked, now_)) return;
  try {
    const std::optional<TraceContext> trace = state_->blocked.trace(work);
    const LineTrace line(trace ? &*trace : nullptr);
    log(LogLevel::warning, "exec", exec::blocked_text(blocked, state_->blocked.limit(), work));
  } catch (const std::bad_alloc&) {
    // The loop goes on without the line.
  }
}

void Loop::wait_for_work() {
  State& state = *state_;
  Time due = state.wheel.next().value_or(Time::max());
  if (poller_->real_time())
    due = state.memory.wake_time(due, state.ready.shrinkable());  // Simulated time does not pass for this.
  const Time start = now_;
  bool polled = options_.wait != Wait::event && poller_->real_time();
  if (polled && spin_for_work(due)) return;
  if (options_.wait == Wait::event && !state.sources.empty()) {
    polled = true;
    if (poll_after_work()) return;
  }
  for (exec::Source* source = state.sources.first; source != nullptr; source = source->next_) {
    if (!source->arm()) return;
  }
  // A source may have started a timer while it was armed.
  if (!state.sources.empty()) due = std::min(due, state.wheel.next().value_or(Time::max()));
  state.sleeping.store(true, std::memory_order_seq_cst);
  if (!state.busy()) {
    const Time asleep = poller_->now();
    // After a poll, only the machine itself can have taken long.
    if (!polled) {
      const Time begin = now_ - std::exchange(state.polled_work, Duration::zero());
      if (state.blocked.notes(asleep - begin)) [[unlikely]] {
        note_long_turn(now_, begin, asleep, work_);
      } else {
        state.record.add(asleep - begin, work_);
      }
    }
    work_ = nullptr;
    state.timers.notify(state.timers.next, asleep);
    // `sleeping` stays true while another event loop waits, so that post() wakes the poller, and that loop with it.
    if (!sleep_until_work(start, asleep, due)) return;
  }
  state.sleeping.store(false, std::memory_order_relaxed);
}

// Polls for a while. True if there was an event, or if there is work by now.
bool Loop::spin_for_work(Time due) {
  State& state = *state_;
  const Time start = now_;
  const Time spin_end =
      options_.wait == Wait::busy_poll || state.spin >= Time::max() - start ? Time::max() : start + state.spin;
  for (bool after_work = true;; after_work = false) {
    const Time before = now_;
    const bool found = after_work ? poll_after_work() : poll_once();
    if (!after_work && now_ - before >= exec::LongTurns::long_min) [[unlikely]]
      advanced_ = now_ - state.long_turns.end(before, now_);
    if (found || state.busy() || now_ >= due) {
      if (found) {
        if (!after_work) state.polled_work = now_ - before;
        state.spin = state.spin_limit.get();
      }
      return true;
    }
    if (now_ >= spin_end) return false;
    spin_pause();
  }
}

// The wait for work began at `start`. Sleeps from `asleep` until an event, a wake-up or `due`. False: another event
// loop waits from now on.
bool Loop::sleep_until_work(Time start, Time asleep, Time due) {
  State& state = *state_;
  if (state.waiting.by == State::Waiter::other) {
    if (poller_->wait(Duration::zero(), now_) != 0 || state.busy()) return true;
    state.waiting = {State::Waiter::other_now, due};
    return false;
  }
  const Duration sleep = due == Time::max() ? forever : std::max(due - asleep, Duration::zero());
  if (options_.wait == Wait::spin && sleep > exec::SpinLimit::probe_sleep && poller_->real_time() &&
      state.spin_limit.probe_due()) {
    const bool found = poller_->wait(exec::SpinLimit::probe_sleep, now_) != 0;
    if (!found && !state.busy()) state.spin_limit.probed(now_ - asleep, timer_slack());
  } else {
    poller_->wait(sleep, now_);
    const Duration limit = state.spin_limit.get();
    state.spin = now_ - start <= limit ? limit : std::max(state.spin / 2, spin_least);
  }
  return true;
}

}  // namespace hawser
