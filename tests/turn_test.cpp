#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "exec/test/working_poller_testing.h"
#include "hawser/memory.h"
#include "pipe/loop_turn.h"
#include "rpc/session/session.h"
#include "tests/hand_network.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "wire/memory_body.h"

// Time for which one connection may occupy its loop. The handlers take virtual time.
namespace hawser::turn {

using namespace testing_tools;
using wire::FrameKind;

class Turn : public ::testing::Test {
 protected:
  // Takes 50 us of virtual time, or `cost`.
  struct Service {
    Turn& test;
    std::size_t dear(std::string_view text) {
      test.worked += test.cost;
      ++test.calls;
      if (test.cost > 10ms) test.loop.after(1ms);  // The handler starts a timer.
      return text.size();
    }
  };

  void SetUp() override {
    server = std::make_unique<Server>(
        loop, over(network, ServerOptions{.listen = "by hand", .transports = {.required = "stream"}}));
    server->register_handler<&Service::dear>(&service);
    ASSERT_TRUE(server->start());
  }
  void run(Duration duration) {
    loop.run([](Loop& on, Duration time) -> Task<void> { co_await on.sleep(time); }(loop, duration));
  }
  Peer& peer() {
    Peer& made = peers.emplace_back(*network);
    run(1ms);
    made.script.sent.clear();
    return made;
  }
  static std::string requests(std::uint32_t count, std::size_t bytes) {
    std::string all;
    for (std::uint32_t i = 0; i < count; ++i) {
      all += text(message(request_of<&Service::dear>(call_id(i)), text_body(std::string(bytes, 'd'))));
    }
    return all;
  }

  Duration worked{};
  Duration reading{};  // Duration of one reading of the clock.
  Duration cost = 50us;
  std::size_t calls = 0;
  Service service{*this};
  Loop loop{std::make_unique<exec::WorkingPoller>(worked, reading), LoopOptions{.log = no_log()}};
  std::shared_ptr<HandNetwork> network = std::make_shared<HandNetwork>();
  std::deque<Peer> peers;
  std::unique_ptr<Server> server;
};

// One connection has 1'000 requests of 50 us, all received at once. It answers all of them, in many turns.
TEST_F(Turn, ManySmallMessagesDoNotKeepTheLoop) {
  Peer& flood = peer();
  Peer& honest = peer();
  flood.say(requests(1000, 10));
  const std::size_t turn = calls;
  // The clock is read about every 30 messages.
  EXPECT_GE(turn, 20U);
  EXPECT_LE(turn, 20U + 2 * pipe::LoopTurn::clock_interval / pipe::LoopTurn::message_cost);
  EXPECT_TRUE(flood.script.paused) << "its peer is held back meanwhile";
  honest.say(requests(1, 10));
  EXPECT_EQ(calls, turn + 1) << "the other connection has its turn at once";
  std::size_t longest = 0;
  for (std::size_t before = calls; calls < 1001; before = calls) {
    run(10us);
    longest = std::max(longest, calls - before);
    ASSERT_GT(calls, before) << "it goes on by itself";
  }
  EXPECT_LE(longest, turn + 2 * pipe::LoopTurn::clock_interval / pipe::LoopTurn::message_cost);
  run(1ms);
  EXPECT_EQ(calls, 1001U);
  EXPECT_FALSE(flood.script.paused);
  EXPECT_TRUE(flood.heard(FrameKind::response));
}

// Long messages are timed one by one: a turn handles only as many as fit into it.
TEST_F(Turn, LongMessagesAreTimedEach) {
  Peer& flood = peer();
  flood.say(requests(100, 20'000));
  EXPECT_LE(calls, 20U);
  EXPECT_GE(calls, 19U);
  // Each time another connection makes progress, there has been another turn.
  for (std::size_t before = calls; calls < 100; before = calls) {
    run(1ms);
    flood.say({});
    ASSERT_GT(calls, before);
    EXPECT_LE(calls, before + 40);
  }
}

// A short message can make the server copy much, so copies are timed too.
TEST_F(Turn, ReadsOfMuchMemoryAreTimedEach) {
  constexpr std::size_t bytes = std::size_t{256} << 10;
  RegisteredBuffer buffer = std::move(*RegisteredBuffer::allocate(*server, bytes));
  const ExposedRegion region = std::move(*buffer.expose(0, bytes, RegionAccess::read));
  const RemoteRegion& handle = region.handle();
  std::string body(wire::region_id_bytes + wire::memory_range_bytes, '\0');
  wire::write_memory_range(wire::write_region_id(reinterpret_cast<std::byte*>(body.data()),
                                                 {handle.owner, handle.slot, handle.generation, handle.capability}),
                           {.offset = 0, .bytes = bytes});
  std::string all;
  for (std::uint32_t i = 0; i < 25; ++i) {
    all += text(message(
        {.kind = FrameKind::memory, .call = call_id(i), .method = static_cast<std::uint32_t>(wire::MemoryAction::read)},
        body));
  }
  Peer& flood = peer();
  // The second reading after the first one ends the turn.
  reading = pipe::LoopTurn::time_max / 2;
  flood.say(all);
  reading = {};
  EXPECT_TRUE(flood.script.paused);
  EXPECT_LE(flood.script.sent.size(), 6 * bytes) << "of 25 reads";
  run(10ms);
  EXPECT_GT(flood.script.sent.size(), 25 * bytes) << "it goes on by itself";
}

// A handler that reads the clock sets the time of the loop forward. The turn of its connection goes on nevertheless.
TEST_F(Turn, HandlersThatSetTheTimeForwardHaveNoLongerTurn) {
  cost = 12ms;
  Peer& flood = peer();
  flood.say(requests(300, 20'000));
  EXPECT_LE(calls, 2U);
  run(1ms);
  EXPECT_LE(calls, 8U);
}

// Either side ends a connection that waits for its next turn.
TEST_F(Turn, AConnectionMayEndWhileItRests) {
  for (const bool by_peer : {true, false}) {
    Peer& flood = peer();
    const std::size_t before = calls;
    flood.say(requests(200, 10));
    ASSERT_TRUE(flood.script.paused);
    ASSERT_LT(calls, before + 200);
    if (by_peer) {
      flood.script.sink->broken(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "reset"));
      run(10ms);
      EXPECT_EQ(server->counters().connections_open, 0U);
    } else {
      server.reset();
      run(10ms);
    }
    EXPECT_LT(calls, before + 200);
  }
}

}  // namespace hawser::turn
