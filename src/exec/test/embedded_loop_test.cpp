#include "hawser/embedded_loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <coroutine>
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "hawser/scope.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"

namespace hawser {
namespace {

LoopOptions embedded_test_options() {
  LoopOptions options;
  options.log = no_log();
  return options;
}

class EmbeddedLoopTest : public testing::Test {
 protected:
  // Stands for the other event loop's wait.
  bool readable(int timeout_ms = 0) const {
    pollfd watched{.fd = embedded.descriptor(), .events = POLLIN, .revents = 0};
    return poll(&watched, 1, timeout_ms) == 1;
  }
  // Polls until the loop has no work.
  Duration settle() {
    Duration next = embedded.poll_once();
    while (next == Duration::zero()) next = embedded.poll_once();
    return next;
  }

  // A loop without timers waits at least this time: it may wake to return memory that its thread keeps.
  static constexpr Duration idle_min = std::chrono::seconds(1);

  EmbeddedLoop embedded{embedded_test_options()};
  Loop& loop = embedded.loop();
};

TEST_F(EmbeddedLoopTest, AsksForTheFirstPoll) {
  EXPECT_TRUE(readable());
  EXPECT_GE(settle(), idle_min);
  EXPECT_FALSE(readable());
}

TEST_F(EmbeddedLoopTest, PostedWorkMakesTheDescriptorReadable) {
  settle();
  bool done = false;
  std::thread([&] { loop.post([&] { done = true; }); }).join();
  EXPECT_TRUE(readable());
  settle();
  EXPECT_TRUE(done);
  EXPECT_FALSE(readable());
}

TEST_F(EmbeddedLoopTest, NoPostIsLostBetweenTwoPolls) {
  constexpr int posts = 20'000;
  int done = 0;
  settle();
  const std::jthread poster([&] {
    for (int i = 0; i < posts; ++i) loop.post([&] { ++done; });
  });
  while (done < posts) {
    ASSERT_TRUE(readable(60'000));
    settle();
  }
}

Task<void> sleep_once(Loop& loop, Duration duration, bool& over) {
  co_await loop.sleep(duration);
  over = true;
}

TEST_F(EmbeddedLoopTest, TheTimeOfTheNextTimerIsReturned) {
  constexpr Duration duration = std::chrono::milliseconds(500);
  bool over = false;
  Scope scope;
  const auto began = std::chrono::steady_clock::now();
  loop.post([&] { scope.spawn(sleep_once(loop, duration, over)); });
  const Duration next = settle();
  const auto end = std::chrono::steady_clock::now();
  if (!over) {
    EXPECT_LE(next, duration + std::chrono::milliseconds(1));
    EXPECT_GE(next, duration - (end - began)) << "the timer ends after began + duration";
  }
}

TEST_F(EmbeddedLoopTest, TimersFireWithoutTheDescriptor) {
  bool over = false;
  Scope scope;
  loop.post([&] { scope.spawn(sleep_once(loop, std::chrono::milliseconds(2), over)); });
  Duration next = embedded.poll_once();
  while (!over) {
    std::this_thread::sleep_for(next);
    next = embedded.poll_once();
  }
}

TEST_F(EmbeddedLoopTest, WorkWithoutEndLeavesTheThreadToOthers) {
  struct Again {
    Loop& loop;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiting) { loop.resume_soon(waiting); }
    void await_resume() const noexcept {}
  };
  int rounds = 0;
  bool stop = false;
  Scope scope;
  scope.spawn([](Loop& on, int& count, const bool& end) -> Task<void> {
    while (!end) {
      ++count;
      co_await Again{on};
    }
  }(loop, rounds, stop));
  EXPECT_EQ(embedded.poll_once(), Duration::zero());
  EXPECT_GT(rounds, 1);
  EXPECT_LE(rounds, 2 * static_cast<int>(EmbeddedLoop::ticks_max) + 1);
  stop = true;
  EXPECT_GE(settle(), idle_min);
}

TEST_F(EmbeddedLoopTest, WatchedDescriptorsMakeItReadable) {
  struct Reader final : exec::Watcher {
    void on_ready(exec::Readiness readiness) override { events += readiness.readable ? 1 : 0; }
    int events = 0;
  } reader;
  const Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  loop.poller().watch(event.get(), reader);
  settle();
  EXPECT_EQ(reader.events, 0);
  ASSERT_EQ(eventfd_write(event.get(), 1), 0);
  EXPECT_TRUE(readable());
  settle();
  EXPECT_EQ(reader.events, 1);
  EXPECT_FALSE(readable());
  loop.poller().unwatch(event.get(), reader);
}

TEST_F(EmbeddedLoopTest, SourcesAreArmedBeforeTheOtherLoopWaits) {
  struct Ring final : exec::Source {
    bool poll() override { return std::exchange(items, 0) != 0; }
    bool arm() override {
      ++armed;
      return items == 0;
    }
    int items = 0;
    int armed = 0;
  } ring;
  loop.add_source(ring);
  settle();
  EXPECT_EQ(ring.armed, 1);
  ring.items = 1;
  settle();
  EXPECT_EQ(ring.items, 0);
  EXPECT_EQ(ring.armed, 2);
  loop.remove_source(ring);
}

TEST_F(EmbeddedLoopTest, UseBetweenTwoPollsAsksForTheNext) {
  settle();
  struct End final : exec::TickEnd {
    void on_tick_end() override { ran = true; }
    bool ran = false;
  } end;
  loop.at_tick_end(end);
  EXPECT_TRUE(readable());
  settle();
  EXPECT_TRUE(end.ran);
  EXPECT_FALSE(readable());
}

TEST_F(EmbeddedLoopTest, APollWithinATaskEndsTheProcess) {
  loop.post([this] { embedded.poll_once(); });
  EXPECT_DEATH(embedded.poll_once(), "EmbeddedLoop::poll_once\\(\\) is called by a task of its own loop");
}

}  // namespace
}  // namespace hawser
