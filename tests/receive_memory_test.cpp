#include <gtest/gtest.h>

#include <coroutine>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "rpc/server/receive_peers.h"
#include "tests/hand_network.h"
#include "tests/testing.h"
#include "transport/network_access.h"

// Limits on the memory that peers make a server hold: peers controlled by hand, in virtual time.
namespace hawser::receive_memory {

using namespace testing_tools;
using wire::FrameKind;

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

std::size_t length(std::string_view text) { return text.size(); }
std::size_t count(const std::vector<std::string_view>& parts) { return parts.size(); }
std::string_view echoes(std::string_view text) { return text; }
Task<std::size_t> keeps(Context& context, std::string_view text) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  co_return text.size();
}
// Reads nothing until it is cancelled.
Task<int> hoards(Context& context, Reader<std::string>) {
  const Result<void> slept = co_await context.loop().sleep(1h, context.token());
  co_return slept ? 0 : 1;
}
Task<int> pours(Writer<std::string> out) {
  const std::string item(1000, 'p');
  for (;;) {
    const Result<void> written = co_await out.write(item);
    if (!written) co_return 0;
  }
}

// Returns a request whose argument, a text, is the whole payload.
std::string payload_request(const RawHeader& header, std::size_t bytes) {
  std::string body(4, '\0');
  store_le(reinterpret_cast<std::byte*>(body.data()), static_cast<std::uint32_t>(bytes) | codec::out_of_band_flag);
  return text(message(header, body, std::string(bytes, 'x')));
}

class ReceiveMemory : public ::testing::Test {
 protected:
  ~ReceiveMemory() override { rest(); }

  Server& serve(ServerOptions options) {
    options.listen = "by hand";
    options.transports.required = "stream";
    server = std::make_unique<Server>(loop, over(network, std::move(options)));
    server->register_handler<length, count, echoes, keeps, hoards, pours>();
    EXPECT_TRUE(server->start());
    return *server;
  }
  void run(Duration duration) {
    loop.run([](Loop& on, Duration time) -> Task<void> { co_await on.sleep(time); }(loop, duration));
  }
  // Runs a few passes of the loop, in which virtual time need not advance.
  void turn() {
    struct Yield {
      Loop& on;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> waiting) const { on.resume_soon(waiting); }
      void await_resume() const noexcept {}
    };
    loop.run([](Loop& on) -> Task<void> {
      for (int i = 0; i < 4; ++i) {
        co_await Yield{on};
      }
    }(loop));
  }
  // Closes all connections and checks that no memory is left in use.
  void rest() {
    if (server == nullptr) return;
    for (Peer& peer : peers) {
      peer.script.sink->ended(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "gone"));
    }
    run(1s);
    EXPECT_EQ(server->counters().connections_open, 0U);
    EXPECT_EQ(server->counters().calls_in_flight, 0U);
    EXPECT_EQ(server->counters().receive_bytes, 0U);
    server.reset();
  }
  // Connects a peer, from an address of its own unless one is given.
  Peer& peer(wire::Hello hello = usual_hello(), std::string address = {}) {
    if (address.empty()) address = "10.0.0." + std::to_string(peers.size()) + ":1";
    Peer& made = peers.emplace_back(*network, std::move(address), hello);
    run(1ms);
    made.script.sent.clear();
    return made;
  }
  std::size_t used() const { return server->counters().receive_bytes; }
  void expect_answered(Peer& one, std::uint32_t call) {
    run(1ms);
    const std::optional<RawFrame> answer = one.heard(FrameKind::response);
    ASSERT_TRUE(answer) << (one.heard(FrameKind::error) ? one.heard(FrameKind::error)->body : "no answer");
    EXPECT_EQ(answer->header.call, call);
  }
  void expect_refused(Peer& one, std::uint32_t call) {
    run(1ms);
    const std::optional<RawFrame> answer = one.heard(FrameKind::error);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->header.call, call);
    EXPECT_EQ(static_cast<ErrorCode>(answer->header.method & 0xffffU), ErrorCode::overloaded) << answer->body;
    EXPECT_NE(answer->body.find("receive_bytes_max"), std::string::npos) << answer->body;
  }

  Loop loop{std::make_unique<exec::SimPoller>(), LoopOptions{.log = no_log()}};
  std::shared_ptr<HandNetwork> network = std::make_shared<HandNetwork>();
  std::deque<Peer> peers;
  std::unique_ptr<Server> server;
};

// Sixteen announcements of the longest message must not keep others from sending large requests.
TEST_F(ReceiveMemory, AnnouncementsDoNotUseUpTheBudget) {
  serve({.message_bytes_max = 4 * mib, .receive_bytes_max = 16 * mib});
  const std::string beginning = payload_request(request_of<length>(call_id(0)), 4 * mib - kib).substr(0, 100);
  for (int i = 0; i < 64; ++i) peer().say(beginning);
  EXPECT_LE(used(), 16 * mib);
  Peer& honest = peer();
  honest.say(payload_request(request_of<length>(call_id(1)), mib), 64 * kib);
  expect_answered(honest, call_id(1));
  EXPECT_EQ(server->counters().memory_refusals, 0U);
  run(25s);
  EXPECT_EQ(server->counters().slow_peers, 64U);
  EXPECT_EQ(server->counters().connections_open, 1U) << "those who send nothing have been ended";
  EXPECT_EQ(used(), 0U);
  honest.say(payload_request(request_of<length>(call_id(2)), 4 * mib - kib), 64 * kib);
  expect_answered(honest, call_id(2));
}

// Received bytes are charged, whether in heads or in payloads.
TEST_F(ReceiveMemory, WhatHasComeIsBounded) {
  for (const bool in_head : {true, false}) {
    serve({.message_bytes_max = 4 * mib, .receive_bytes_max = 16 * mib});
    const std::string whole =
        in_head ? text(message(request_of<length>(call_id(3)), text_body(std::string(4 * mib - kib, 'h'))))
                : payload_request(request_of<length>(call_id(3)), 4 * mib - kib);
    for (int i = 0; i < 24; ++i) {
      peer().say(std::string_view(whole).substr(0, whole.size() - 1), 64 * kib);
      EXPECT_LE(used(), 16 * mib + 24 * 32 * kib);
    }
    EXPECT_GE(used(), 8 * mib);
    unsigned answered = 0;
    for (Peer& one : peers) {
      one.say("h");
      run(1ms);
      if (one.heard(FrameKind::response)) {
        ++answered;
      } else {
        expect_refused(one, call_id(3));
      }
      // The connection continues.
      one.script.sent.clear();
      one.say(text(message(request_of<length>(call_id(4)), text_body("hi"))));
      expect_answered(one, call_id(4));
    }
    EXPECT_GE(answered, 2U) << in_head;
    EXPECT_EQ(server->counters().memory_refusals, 24U - answered);
    EXPECT_EQ(used(), 0U);
    rest();
    peers.clear();
  }
}

// The longest message fits, whatever its pace, also with the smallest budget and share that the options allow.
TEST_F(ReceiveMemory, OneMessageOfTheLargestSizeAlwaysFits) {
  for (const std::size_t bytes : {100 * kib, mib, 3 * mib, 5 * mib, 9 * mib}) {
    serve({.message_bytes_max = bytes, .receive_bytes_max = bytes, .receive_share_bytes_max = bytes});
    for (const std::size_t pace : {kib, 60 * kib, 64 * mib}) {
      Peer& one = peer();
      one.say(payload_request(request_of<keeps>(call_id(1)), bytes - 40), pace);
      EXPECT_FALSE(one.heard(FrameKind::error)) << bytes << " " << pace;
      one.say(text(message({.kind = FrameKind::cancel, .call = call_id(1)})));
      expect_answered(one, call_id(1));
      one.script.sent.clear();
      one.say(text(message(request_of<length>(call_id(1)), text_body(std::string(bytes - 40, 'h')))), pace);
      expect_answered(one, call_id(1));
      EXPECT_EQ(used(), 0U);
    }
    EXPECT_EQ(server->counters().memory_refusals, 0U);
    rest();
    peers.clear();
  }
}

// One connection can't use the whole budget.
TEST_F(ReceiveMemory, AConnectionHasAShare) {
  serve({.message_bytes_max = mib, .receive_bytes_max = 16 * mib, .receive_share_bytes_max = 4 * mib});
  Peer& greedy = peer();
  for (std::uint32_t i = 0; i < 20; ++i)
    greedy.say(payload_request(request_of<keeps>(call_id(i)), mib - kib), 64 * kib);
  EXPECT_LE(used(), 4 * mib);
  expect_refused(greedy, call_id(19));
  EXPECT_GE(server->counters().memory_refusals, 16U);
  Peer& other = peer();
  for (std::uint32_t i = 0; i < 3; ++i) other.say(payload_request(request_of<keeps>(call_id(i)), mib - kib), 64 * kib);
  EXPECT_FALSE(other.heard(FrameKind::error));
}

// Many connections of one peer can't use the whole budget, either.
TEST_F(ReceiveMemory, APeerHasAShare) {
  serve({.message_bytes_max = mib, .receive_bytes_max = 16 * mib, .receive_share_bytes_max = 4 * mib});
  const std::string request = payload_request(request_of<keeps>(call_id(1)), mib - kib);
  for (int i = 0; i < 20; ++i) peer(usual_hello(), "10.0.0.1:" + std::to_string(i)).say(request, 64 * kib);
  EXPECT_LE(used(), 8 * mib + 20 * 4 * kib);
  EXPECT_GE(used(), 7 * mib);
  expect_refused(peers.back(), call_id(1));
  EXPECT_NE(peers.back().heard(FrameKind::error)->body.find("receive_peer_bytes_max 8388608 bytes"), std::string::npos);
  for (int i = 0; i < 4; ++i) {
    Peer& other = peer(usual_hello(), "10.0.0.2:" + std::to_string(i));
    other.say(request, 64 * kib);
    EXPECT_FALSE(other.heard(FrameKind::error)) << i;
  }
  // Small requests of the first peer are served nevertheless, and it has its share again when its calls have ended.
  Peer& late = peer(usual_hello(), "10.0.0.1:99");
  late.say(text(message(request_of<length>(call_id(2)), text_body("hi"))));
  expect_answered(late, call_id(2));
  for (int i = 0; i < 4; ++i)
    peers[static_cast<std::size_t>(i)].say(text(message({.kind = FrameKind::cancel, .call = call_id(1)})));
  run(1ms);
  late.script.sent.clear();
  late.say(request, 64 * kib);
  run(1ms);
  EXPECT_FALSE(late.heard(FrameKind::error));
}

TEST(ReceivePeers, AreHostsNetworksAndProcesses) {
  using rpc::receive_peer_of;
  EXPECT_EQ(receive_peer_of("10.0.0.1:1"), receive_peer_of("10.0.0.1:2"));
  EXPECT_NE(receive_peer_of("10.0.0.1:1"), receive_peer_of("10.0.0.2:1"));
  EXPECT_NE(receive_peer_of("unix:pid 1"), receive_peer_of("unix:pid 2"));
  EXPECT_EQ(receive_peer_of("unix:@one"), receive_peer_of("unix:/two"));
  for (const char* same : {"[2001:db8:1:2:3:4:5:6]:1", "[2001:db8:1:2::]:1", "[2001:db8:1:2::9]:7"}) {
    EXPECT_EQ(receive_peer_of(same), "2001:db8:1:2::/64") << same;
  }
  EXPECT_EQ(receive_peer_of("[2001:db8::1]:1"), receive_peer_of("[2001:db8:0:0:1:2:3:4]:1"));
  EXPECT_NE(receive_peer_of("[2001:db8:1:2::9]:1"), receive_peer_of("[2001:db8:1:3::9]:1"));
  EXPECT_EQ(receive_peer_of("[::1]:1"), "0:0:0:0::/64");
  EXPECT_NE(receive_peer_of("[::ffff:10.0.0.1]:1"), receive_peer_of("[::ffff:10.0.0.2]:1"));

  rpc::ReceivePeers peers;
  const auto one = peers.find("10.0.0.1:1");
  EXPECT_EQ(peers.find("10.0.0.1:2"), one);
  for (int i = 0; i < 1000; ++i) EXPECT_NE(peers.find("10.0.1." + std::to_string(i) + ":1"), one);
  EXPECT_EQ(peers.find("10.0.0.1:3"), one) << "what is in use stays";
}

// Small requests that coroutines keep are charged too.
TEST_F(ReceiveMemory, KeptSmallRequestsCount) {
  serve({.message_bytes_max = 64 * kib, .receive_bytes_max = 2 * mib, .receive_share_bytes_max = mib});
  Peer& one = peer();
  std::string many;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    many += text(message(request_of<keeps>(call_id(i)), text_body(std::string(3000, 's'))));
  }
  one.say(many);
  EXPECT_LE(used(), mib);
  EXPECT_GE(used(), 900 * kib);
  expect_refused(one, call_id(999));
}

// Items are charged by the block that they keep, not by their length. The call's error says why its stream has ended.
TEST_F(ReceiveMemory, ItemsCountByTheirBlocks) {
  serve({.message_bytes_max = mib, .receive_bytes_max = 8 * mib, .receive_share_bytes_max = 4 * mib});
  Peer& one = peer();
  std::uint32_t calls = 0;
  for (; calls < 64 && server->counters().memory_refusals == 0; ++calls) {
    one.say(text(message(request_of<hoards>(call_id(calls)))));
    // Each item keeps a block of 256 KiB, since the bytes behind it fill the rest of the block.
    one.say(text(message({.kind = FrameKind::stream_data, .call = call_id(calls)}, text_body(std::string(5000, 'i')))) +
            text(message(request_of<length>(call_id(4000)), text_body(std::string(255 * kib, 'f')))));
    EXPECT_LE(used(), 4 * mib);
  }
  EXPECT_LE(calls, 17U);
  EXPECT_EQ(server->counters().memory_refusals, 1U);
  run(1ms);
  const std::optional<RawFrame> answer = one.heard(FrameKind::response);
  ASSERT_TRUE(answer);
  // Large items are charged by their payloads.
  Peer& other = peer();
  for (std::uint32_t i = 0; i < 8; ++i) {
    other.say(text(message(request_of<hoards>(call_id(i)))));
    other.say(payload_request({.kind = FrameKind::stream_data, .call = call_id(i)}, mib - kib), 64 * kib);
    EXPECT_LE(used(), 8 * mib);
  }
  EXPECT_GE(server->counters().memory_refusals, 2U);
}

// A message that advances fast enough is kept, however long it takes. One that pauses must continue in time.
TEST_F(ReceiveMemory, SlowMessagesEnd) {
  serve({.receive_rate_min = kib, .receive_window = 1s});
  const std::string whole = payload_request(request_of<length>(call_id(1)), 256 * kib);
  Peer& steady = peer();
  Peer& dripping = peer();
  Peer& quiet = peer();
  quiet.say(text(message(request_of<length>(call_id(1)), text_body("hi"))));
  std::size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    steady.say(std::string_view(whole).substr(at, 700));
    if (server->counters().slow_peers == 0)
      dripping.say(std::string_view(whole).substr(static_cast<std::size_t>(i) * 20, 20));
    at += 700;
    run(500ms);
  }
  EXPECT_EQ(server->counters().slow_peers, 1U);
  EXPECT_EQ(server->counters().connections_open, 2U);
  steady.say(std::string_view(whole).substr(at));
  expect_answered(steady, call_id(1));
  EXPECT_TRUE(quiet.heard(FrameKind::response)) << "who sends nothing is not slow";
}

TEST_F(ReceiveMemory, APausedConnectionDoesNotEscapeTheRule) {
  serve({.send_backlog_bytes_max = 64 * kib, .receive_rate_min = kib, .receive_window = 1s});
  Peer& one = peer();
  one.script.take.assign(1'000'000, 0);  // Reads nothing of its replies.
  std::string burst;
  for (std::uint32_t i = 0; i < 100; ++i) burst += text(message({.kind = FrameKind::request, .call = call_id(i)}));
  for (int i = 0; i < 200 && !one.script.paused; ++i) one.say(burst);
  ASSERT_TRUE(one.script.paused);
  EXPECT_GT(used(), 0U) << "what waits to be read is paid for";
  run(3s);
  EXPECT_EQ(server->counters().slow_peers, 1U);
}

// Memory is used up, and the connection is not read until the peer has taken replies. What the peer has sent before is
// kept and answered. A peer that takes nothing is ended by the rule of the least rate.
TEST_F(ReceiveMemory, APausedConnectionKeepsWhatItReceivedWithoutMemory) {
  serve({.message_bytes_max = 512 * kib,
         .send_backlog_bytes_max = 64 * kib,
         .receive_bytes_max = 4 * mib,
         .receive_share_bytes_max = mib,
         .receive_rate_min = kib,
         .receive_window = 1s,
         .ping_interval = forever});
  constexpr std::uint32_t requests = 150;
  std::string burst;
  for (std::uint32_t i = 2; i <= requests; ++i) {
    burst += text(message(request_of<echoes>(call_id(i)), text_body(std::string(kib, 'e'))));
  }
  std::size_t kept = 0;  // Used by the calls that keep their requests.
  const auto fill_and_pause = [&]() -> Peer& {
    Peer& one = peer();
    for (std::uint32_t i = 0; i < 2; ++i) {
      one.say(payload_request(request_of<keeps>(call_id(i)), 500 * kib), 64 * kib);
    }
    kept = used();
    one.script.take.assign(1000, 0);
    one.say(burst);
    EXPECT_TRUE(one.script.paused);
    EXPECT_TRUE(one.unread.empty()) << "the rest of the burst is in the connection's block";
    EXPECT_GE(used(), kept + 64 * kib) << "what waits to be read is charged although memory is used up";
    return one;
  };
  Peer& reads = fill_and_pause();
  run(500ms);
  ASSERT_EQ(server->counters().connections_open, 1U);
  reads.script.take.clear();
  reads.script.sink->sendable(0);
  expect_answered(reads, call_id(requests));
  EXPECT_FALSE(reads.script.paused);
  EXPECT_FALSE(reads.heard(FrameKind::error));
  EXPECT_EQ(used(), kept);
  const std::size_t kept_by_first = kept;
  fill_and_pause();
  run(3s);
  EXPECT_EQ(server->counters().slow_peers, 1U);
  EXPECT_EQ(server->counters().connections_open, 1U);
  EXPECT_EQ(used(), kept_by_first);
}

// Connections that their peers do not read hold as much again as the limits, and one block more. Then they end.
TEST_F(ReceiveMemory, PausedConnectionsOfOnePeerAreBoundedInTotal) {
  serve({.message_bytes_max = 512 * kib,
         .send_backlog_bytes_max = 64 * kib,
         .receive_bytes_max = 4 * mib,
         .receive_share_bytes_max = mib,
         .receive_peer_bytes_max = mib,
         .ping_interval = forever});
  std::string burst;
  for (std::uint32_t i = 0; i < 150; ++i) {
    burst += text(message(request_of<echoes>(call_id(i)), text_body(std::string(kib, 'e'))));
  }
  constexpr std::size_t connections = 60;
  for (std::size_t i = 0; i < connections; ++i) {
    Peer& one = peer(usual_hello(), "10.1.0.1:" + std::to_string(i + 1));
    one.script.take.assign(1000, 0);
    one.say(burst);
  }
  EXPECT_LT(server->counters().connections_open, connections);
  const std::size_t replies = server->counters().connections_open * 256 * kib;  // The blocks that replies refer to.
  EXPECT_LE(used(), replies + 2 * mib + 256 * kib);
}

// With the largest window that a peer can grant, the server keeps no more than its backlog, and continues to serve.
TEST_F(ReceiveMemory, AHostileWindowDoesNotFillTheBacklog) {
  serve({.send_backlog_bytes_max = 64 * kib, .ping_interval = forever});
  wire::Hello hello = usual_hello();
  hello.stream_window_bytes = 0xffff'ffff;
  Peer& reads = peer(hello);
  Peer& other = peer();
  for (std::uint32_t i = 0; i < 3; ++i) reads.say(text(message(request_of<pours>(call_id(i)))));
  // All bytes are sent at once: virtual time stands still, and the turns of the streams must end so that the loop
  // continues.
  for (int i = 0; i < 10; ++i) {
    reads.script.sent.clear();
    other.script.sent.clear();
    other.say(text(message(request_of<length>(call_id(1)), text_body("hi"))));
    turn();
    EXPECT_TRUE(other.heard(FrameKind::response));
    EXPECT_GT(reads.script.sent.size(), 0U);
    EXPECT_LE(reads.script.sent.size(), 8 * mib);
  }
  // The peer reads nothing any more.
  reads.script.take.assign(1, 0);
  turn();
  run(1s);
  reads.script.sent.clear();
  run(1s);
  EXPECT_EQ(reads.script.sent.size(), 0U);
  reads.script.sink->sendable(0);
  EXPECT_LE(reads.script.sent.size(), 64 * kib + 3 * 1100) << "the backlog's bound, and an item of each stream";
  EXPECT_GE(reads.script.sent.size(), 32 * kib);
  const std::size_t before = reads.script.sent.size();
  turn();
  EXPECT_GT(reads.script.sent.size(), before) << "the writers have gone on";
}

// Once memory is scarce, an announcement reserves only the bytes that have arrived with it. Otherwise thousands of
// connections could use up the rest with the first 64 KiB of each.
TEST_F(ReceiveMemory, ScarceMemoryIsNotForAnnouncements) {
  serve({.message_bytes_max = 4 * mib, .receive_bytes_max = 16 * mib});
  const std::string whole = payload_request(request_of<length>(call_id(0)), 2 * mib);
  for (int i = 0; i < 200; ++i) peer().say(std::string_view(whole).substr(0, 40));
  EXPECT_LE(used(), 8 * mib + 200 * 8 * kib);
  Peer& honest = peer();
  honest.say(payload_request(request_of<length>(call_id(1)), 4 * mib - kib), 64 * kib);
  expect_answered(honest, call_id(1));
}

// Other peers have used up the budget with memory that their calls keep for an unlimited time. Small requests are still
// answered.
TEST_F(ReceiveMemory, SmallRequestsAreServedWhateverOthersHold) {
  serve({.message_bytes_max = mib, .receive_bytes_max = 8 * mib, .ping_interval = forever});
  for (int i = 0; i < 6; ++i) {
    Peer& greedy = peer();
    for (std::uint32_t call = 0; call < 2; ++call) {
      greedy.say(payload_request(request_of<keeps>(call_id(call)), mib - kib), 64 * kib);
    }
    for (std::uint32_t call = 2; call < 1600; ++call) {
      greedy.say(text(message(request_of<keeps>(call_id(call)), text_body(std::string(call < 1500 ? 1000 : 10, 's')))));
    }
  }
  EXPECT_GT(used(), 8 * mib - 256) << "not even the smallest block is left";
  EXPECT_LE(used(), 8 * mib + 6 * detail::ReceiveAccount::reserve_bytes);
  Peer& honest = peer();
  for (std::uint32_t call = 0; call < 3; ++call) {
    honest.say(text(message(request_of<keeps>(call_id(call)), text_body(std::string(100, 'h')))));
  }
  honest.say(text(message(request_of<keeps>(call_id(9)), text_body(std::string(8 * kib, 'h')))));
  expect_refused(honest, call_id(9));
  honest.script.sent.clear();
  for (std::uint32_t call = 0; call < 3; ++call) {
    honest.say(text(message({.kind = FrameKind::cancel, .call = call_id(call)})));
    expect_answered(honest, call_id(call));
  }
}

// A reply that refers to the request keeps it until the peer has read the reply. A peer that reads a byte now and then
// must not hold memory that others need.
TEST_F(ReceiveMemory, SlowReadersGiveBackScarceMemory) {
  constexpr Duration window = 1s;
  serve({.message_bytes_max = 4 * mib,
         .send_backlog_bytes_max = 64 * kib,
         .receive_bytes_max = 22 * mib,  // A reply counts beside the request that it refers to.
         .receive_share_bytes_max = 16 * mib,
         .receive_peer_bytes_max = 16 * mib,
         .receive_rate_min = kib,
         .receive_window = window,
         .ping_interval = forever});
  const auto takes = [](Peer& one, std::size_t bytes) {
    one.script.take.assign(1, bytes);
    one.script.take.resize(1000, 0);
    one.script.sink->sendable(0);
  };
  const std::string request = payload_request(request_of<echoes>(call_id(0)), 4 * mib - kib);
  const auto slow = [&]() -> Peer& {
    Peer& one = peer();
    one.script.take.assign(1000, 0);
    one.say(request);
    return one;
  };
  Peer& first = slow();
  for (int i = 0; i < 10; ++i) {
    takes(first, 1);
    run(window);
  }
  EXPECT_EQ(server->counters().slow_peers, 0U) << "nobody needs the memory";
  // The peer has read all but a little, so the server reads from it again. Its request is kept completely.
  takes(slow(), 4 * mib - 20 * kib);
  Peer& steady = slow();
  EXPECT_GE(used(), 12 * mib - 8 * kib);
  for (int i = 0; i < 5; ++i) {
    for (Peer& one : peers) {
      if (server->counters().slow_peers == 0) takes(one, &one == &steady ? 2 * kib : 1);
    }
    if (server->counters().slow_peers != 0) takes(steady, 2 * kib);
    run(window);
  }
  EXPECT_EQ(server->counters().slow_peers, 2U);
  EXPECT_EQ(server->counters().connections_open, 1U);
  EXPECT_LE(used(), 9 * mib);
}

// Empty items are charged by the memory in which the server stores them.
TEST_F(ReceiveMemory, EmptyItemsCount) {
  serve({.message_bytes_max = 64 * kib, .receive_bytes_max = 4 * mib, .receive_share_bytes_max = mib});
  Peer& one = peer();
  const std::string item = text(message({.kind = FrameKind::stream_data, .call = call_id(0)}));
  one.say(text(message(request_of<hoards>(call_id(0)))));
  one.say(item);
  const std::size_t cost = used();
  one.say(item);
  EXPECT_EQ(used(), 2 * cost);
  // The header of the block that is charged, and room for the item in a vector that may be half empty.
  EXPECT_GE(cost, Buffer::allocate(0).block()->size() + sizeof(Block) + 2 * sizeof(detail::StreamCore::Item));
}

// Options with which no client could be served, or with which the loop would check its connections all the time.
TEST_F(ReceiveMemory, OptionsThatServeNobodyAreRefused) {
  const auto expect_refused_option = [&](ServerOptions options, std::string_view name) {
    options.listen = "by hand";
    Server one(loop, over(network, std::move(options)));
    const Result<void> started = one.start();
    EXPECT_ERROR(started, invalid_argument, name);
  };
  expect_refused_option({.message_bytes_max = 35}, "message_bytes_max (35)");
  expect_refused_option({.calls_per_connection_max = 0}, "calls_per_connection_max (0)");
  expect_refused_option({.stream_window_bytes = 0}, "stream_window_bytes (0)");
  expect_refused_option({.ping_interval = Duration::zero()}, "ping_interval (0 ns)");
  expect_refused_option({.message_bytes_max = mib, .receive_peer_bytes_max = kib},
                        "receive_peer_bytes_max (1024 bytes)");
  expect_refused_option({.receive_bytes_max = 64 * mib, .receive_peer_bytes_max = 65 * mib}, "receive_peer_bytes_max");
  expect_refused_option({.receive_window = std::chrono::nanoseconds(999'999)}, "receive_window (999999)");
  serve({.message_bytes_max = 36, .receive_bytes_max = 36, .receive_rate_min = SIZE_MAX, .receive_window = 1ms});
  Peer& one = peer();
  one.say(text(message({.kind = FrameKind::ping})));
  run(1ms);
  EXPECT_TRUE(one.heard(FrameKind::pong));
  const auto connect = [&](ClientOptions options) {
    Client client(loop, over(network, std::move(options)));
    return loop.run(client.connect("by hand"));
  };
  EXPECT_ERROR(connect({.stream_window_bytes = 0}), invalid_argument, "stream_window_bytes (0)");
  EXPECT_ERROR(connect({.calls_in_flight_max = 0}), invalid_argument, "calls_in_flight_max (0)");
  EXPECT_ERROR(connect({.ping_interval = Duration(-1)}), invalid_argument, "ping_interval (-1 ns)");
  EXPECT_ERROR(connect({.message_bytes_max = 0}), invalid_argument, "message_bytes_max (0)");
  EXPECT_ERROR(connect({.message_bytes_max = 35}), invalid_argument, "message_bytes_max (35)");
  EXPECT_ERROR(connect({.message_bytes_max = 36}), unavailable, "nobody connects here");
}

// Credit may be used up exactly. No further item may follow.
TEST_F(ReceiveMemory, ItemsNeedCredit) {
  constexpr std::uint32_t window = 8 * kib;
  serve({.stream_window_bytes = window});
  const auto item = [](std::size_t cost) {
    return text(
        message({.kind = FrameKind::stream_data, .call = call_id(1)}, text_body(std::string(cost - 64 - 4, 'i'))));
  };
  Peer& exact = peer();
  exact.say(text(message(request_of<hoards>(call_id(1)))));
  exact.say(item(window / 2) + item(window / 2));
  EXPECT_EQ(server->counters().protocol_errors, 0U);
  exact.say(item(100));
  EXPECT_EQ(server->counters().protocol_errors, 1U);
  Peer& nearly = peer();
  nearly.say(text(message(request_of<hoards>(call_id(1)))));
  nearly.say(item(window - 1) + item(window));
  EXPECT_EQ(server->counters().protocol_errors, 1U) << "with one byte of credit left one more item may come";
}

}  // namespace hawser::receive_memory
