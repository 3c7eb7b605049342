#include "hawser/transport/poller.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "base/descriptor.h"
#include "exec/test/loop_testing.h"
#include "exec/watcher_table.h"

namespace hawser::exec {
namespace {

struct Ends {
  Ends() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
    near = Descriptor(ends[0]);
    far = Descriptor(ends[1]);
  }
  Descriptor near;
  Descriptor far;
};

struct Recorder final : Watcher {
  void on_ready(Readiness readiness) override {
    ++events;
    last = readiness;
    if (then) then();
  }
  int events = 0;
  Readiness last;
  std::function<void()> then;
};

class PollerTest : public LoopTest {
 protected:
  void poll_once() {
    Time now{};
    loop.poller().wait(Duration::zero(), now);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, PollerTest, every_loop(), name_of);

// An event that was fetched before the descriptor's number was reused is not delivered to any watcher.
TEST_P(PollerTest, AnEventDoesNotReachTheNextOwnerOfADescriptor) {
  Ends first;
  Ends second;
  Ends third;
  Recorder one;
  Recorder two;
  Recorder heir;
  Poller& poller = loop.poller();
  poller.watch(first.near.get(), one);
  poller.watch(second.near.get(), two);
  for (int i = 0; i < 5; ++i) poll_once();  // Makes sure that both descriptors are writable.
  ASSERT_GE(one.events, 1);
  ASSERT_GE(two.events, 1);
  one.events = two.events = 0;
  const int number = second.near.get();
  one.then = [&] {
    poller.unwatch(number, two);
    ASSERT_EQ(dup3(third.near.get(), number, O_CLOEXEC), number);
    poller.watch(number, heir);
  };
  ASSERT_EQ(::send(first.far.get(), "x", 1, 0), 1);
  ASSERT_EQ(::send(second.far.get(), "x", 1, 0), 1);
  while (one.events == 0) poll_once();
  EXPECT_EQ(two.events, 0) << "unwatched before its event was delivered";
  EXPECT_EQ(heir.events, 0) << "told of an event that was fetched before";
  one.then = nullptr;
  for (int i = 0; i < 5; ++i) poll_once();
  EXPECT_GE(heir.events, 1);
  EXPECT_FALSE(heir.last.readable);
  poller.unwatch(first.near.get(), one);
  poller.unwatch(number, heir);
}

TEST_P(PollerTest, OnlyAnErrorIsToldAsBroken) {
  Ends clean;
  Ends reset;
  Recorder one;
  Recorder two;
  loop.poller().watch(clean.near.get(), one);
  loop.poller().watch(reset.near.get(), two);
  ASSERT_EQ(::send(reset.near.get(), "x", 1, 0), 1);  // The peer never reads it.
  clean.far = {};
  reset.far = {};
  for (int i = 0; i < 5; ++i) poll_once();
  EXPECT_TRUE(one.last.hangup);
  EXPECT_FALSE(one.last.broken);
  EXPECT_TRUE(two.last.hangup);
  EXPECT_TRUE(two.last.broken);
  loop.poller().unwatch(clean.near.get(), one);
  loop.poller().unwatch(reset.near.get(), two);
}

// A ring that cannot poll a descriptor reports this once, instead of trying again forever.
TEST_P(PollerTest, ADescriptorThatCannotBePolledIsToldOnce) {
  Poller& poller = loop.poller();
  if (poller.io_uring() == nullptr) GTEST_SKIP() << "epoll refuses such a descriptor when it is watched";
  int closed = -1;
  {
    const Ends ends;
    closed = ends.near.get();
  }
  Recorder one;
  poller.watch(closed, one);
  std::size_t notified = 0;
  for (int i = 0; i < 50; ++i) {
    Time now{};
    notified += poller.wait(Duration::zero(), now);
  }
  EXPECT_EQ(notified, 1U);
  EXPECT_EQ(one.events, 1);
  EXPECT_TRUE(one.last.broken && one.last.hangup && one.last.readable);
  poller.unwatch(closed, one);
}

TEST(WatcherTable, ATokenIsStaleOnceItsDescriptorIsNotWatched) {
  WatcherTable table;
  Recorder one;
  Recorder two;
  const std::uint64_t before = table.add(5, one);
  EXPECT_EQ(table.find(before), &one);
  EXPECT_TRUE(table.remove(5, one));
  EXPECT_FALSE(table.remove(5, one));
  EXPECT_EQ(table.find(before), nullptr);
  const std::uint64_t after = table.add(5, two);
  EXPECT_NE(after, before);
  EXPECT_EQ(table.find(before), nullptr);
  EXPECT_EQ(table.find(after), &two);
  EXPECT_EQ(table.find(7), nullptr);
}

// It watched a descriptor of another loop.
TEST_P(PollerTest, AStrangersUnwatchHasNoEffect) {
  Ends watched;
  Ends other;
  Recorder one;
  Recorder stranger;
  Poller& poller = loop.poller();
  poller.watch(watched.near.get(), one);
  poller.unwatch(watched.near.get(), stranger);
  poller.unwatch(1 << 20, stranger);  // Beyond all descriptors that were watched.
  poller.unwatch(other.near.get(), stranger);
  while (one.events == 0) poll_once();
  poller.unwatch(watched.near.get(), one);
  EXPECT_EQ(stranger.events, 0);
}

}  // namespace
}  // namespace hawser::exec
