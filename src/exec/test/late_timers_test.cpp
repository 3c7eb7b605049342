#include "exec/late_timers.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string_view>

#include "base/descriptor.h"
#include "exec/epoll_poller.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "hawser/timer.h"

namespace hawser::exec {
namespace {

using std::chrono::milliseconds;

// The kernel's descriptors in virtual time: the process pauses behind each poll, before it reads the clock.
class PausingPoller final : public Poller {
 public:
  static constexpr Duration pause = milliseconds(250);

  std::string_view name() const noexcept override { return "pausing"; }
  Time now() const noexcept override { return now_; }
  std::size_t wait(Duration timeout, Time& now) override {
    if (timeout != forever) now_ += timeout;
    now_ += pause;
    now = now_;
    ++waits;
    Time real;
    return epoll_.wait(Duration::zero(), real);
  }
  bool drained() const noexcept override { return epoll_.drained(); }
  void wake() noexcept override { epoll_.wake(); }
  void watch(int fd, Watcher& watcher) override { epoll_.watch(fd, watcher); }
  void unwatch(int fd, Watcher& watcher) noexcept override { epoll_.unwatch(fd, watcher); }
  bool real_time() const noexcept override { return false; }

  std::size_t waits = 0;

 private:
  EpollPoller epoll_;
  Time now_{std::chrono::seconds(1)};
};

// A descriptor that is ready once or, with `again`, always.
class Input final : public Watcher {
 public:
  Input(Loop& loop, std::size_t& seen, bool again) : loop_(loop), seen_(seen), again_(again) {
    loop_.poller().watch(event_.get(), *this);
  }
  ~Input() { loop_.poller().unwatch(event_.get(), *this); }

 private:
  void on_ready(Readiness) override {
    ++seen_;
    if (again_) eventfd_write(event_.get(), 1);
  }

  Loop& loop_;
  std::size_t& seen_;
  const bool again_;
  const Descriptor event_{eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};
};

struct LateTimersTest : testing::Test {
  // More than two batches of the poller.
  static constexpr std::size_t inputs = 600;

  void add_inputs(bool again) {
    for (std::size_t i = 0; i < inputs; ++i) all.emplace_back(loop, seen, again);
  }
  // Returns how much input came before the timer.
  std::size_t seen_before(Duration sleep) {
    loop.run([](Loop& self, Duration asleep) -> Task<void> { co_await self.sleep(asleep); }(loop, sleep));
    return seen;
  }

  PausingPoller* const poller = new PausingPoller;
  Loop loop{std::unique_ptr<Poller>(poller), {.wait = Wait::event}};
  std::size_t seen = 0;
  std::list<Input> all;
};

TEST_F(LateTimersTest, InputThatHasArrivedPrecedesTheTimer) {
  add_inputs(false);
  EXPECT_EQ(seen_before(milliseconds(10)), inputs);
}

TEST_F(LateTimersTest, InputWithoutEndDoesNotKeepTheTimerWaiting) {
  add_inputs(true);
  EXPECT_GE(seen_before(milliseconds(10)), inputs);
  EXPECT_LE(poller->waits, 16U);
}

TEST_F(LateTimersTest, TheTimerWaitsForOnePollIfNothingHasArrived) {
  EXPECT_EQ(seen_before(milliseconds(10)), 0U);
  EXPECT_LE(poller->waits, 4U);
}

// The reply came before the deadline, and the process did not run then.
TEST_F(LateTimersTest, ATimerThatInputStopsDoesNotFire) {
  struct Deadline {
    void expire() noexcept { expired = true; }
    bool expired = false;
    MemberTimer<&Deadline::expire> timer{*this};
  } deadline;
  struct Reply final : Watcher {
    explicit Reply(Deadline& ends) : of(ends) {}
    void on_ready(Readiness) override { of.timer.stop(); }
    Deadline& of;
  } reply(deadline);
  const Descriptor event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  add_inputs(false);
  loop.poller().watch(event.get(), reply);  // Behind the other input.
  loop.run([](Loop& self, Deadline& ends, int fd) -> Task<void> {
    ends.timer.start(self, self.now() + milliseconds(10));
    eventfd_write(fd, 1);
    co_await self.sleep(std::chrono::seconds(2));
  }(loop, deadline, event.get()));
  loop.poller().unwatch(event.get(), reply);
  EXPECT_FALSE(deadline.expired);
}

}  // namespace
}  // namespace hawser::exec
