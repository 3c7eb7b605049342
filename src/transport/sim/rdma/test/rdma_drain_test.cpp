#include <gtest/gtest.h>

#include "base/random.h"
#include "transport/rdma/connection/draining_queue_pair.h"
#include "transport/sim/rdma/test/rdma_attacker_testing.h"

// Connections of a shared receive queue end in every way, and their receives are returned: other connections always
// find a receive. Runs on devices that behave like mlx5, and like Soft-RoCE.
namespace hawser::transport {
namespace {

struct DrainCase {
  const char* name;
  bool raises_last_receive;
  bool destroy_drops_entries;
};
void PrintTo(const DrainCase& one, std::ostream* out) { *out << one.name; }

class RdmaDrain : public RdmaAttack, public ::testing::WithParamInterface<DrainCase> {
 protected:
  void SetUp() override { make(4); }
  void make(unsigned receives) {
    RdmaOptions options = shared_options();
    options.shared_receives_per_connection = receives;
    SimParameters parameters;
    parameters.raises_last_receive = GetParam().raises_last_receive;
    parameters.destroy_drops_entries = GetParam().destroy_drops_entries;
    innocent_.reset();
    server_worker_.reset();
    client_worker_.reset();
    build(options, parameters);
    innocent_ = honest();
  }
  // Uses all credits of the client at once, repeatedly.
  void expect_undisturbed() {
    for (int i = 0; i < 20; ++i) {
      const std::size_t before = innocent_->at_server.messages;
      for (int j = 0; j < 6; ++j) {
        send(*innocent_->client, "burst");
        innocent_->client->flush();
      }
      pass(milliseconds(1));
      ASSERT_EQ(innocent_->at_server.messages, before + 6);
    }
    EXPECT_EQ(server_device().rnr_sent, 0U) << "a receiver was not ready";
  }
  void TearDown() override {
    expect_undisturbed();
    pass(std::chrono::seconds(3));
    EXPECT_EQ(connections(), 1U);
    innocent_.reset();
  }

  std::unique_ptr<HonestPair> innocent_;
};
INSTANTIATE_TEST_SUITE_P(Devices, RdmaDrain,
                         ::testing::Values(DrainCase{"Mlx5", true, true}, DrainCase{"SoftRoce", false, false},
                                           DrainCase{"NewSoftRoce", true, false}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(RdmaDrain, ConnectionsThatTheServerAborts) {
  for (int round = 0; round < 30; ++round) {
    auto pair = honest();
    pair->at_server.abort = pair->server.get();
    send(*pair->client, std::string(7000, 'x'));
    send(*pair->client, std::string(7000, 'y'));
    pass(milliseconds(round % 3));
    send(*pair->client, std::string(7000, 'z'));
    pass(milliseconds(300));
    pair.reset();
    expect_served(*innocent_, 2);
  }
  pass(std::chrono::seconds(3));
  // Each had a part of the queue only until it was drained.
  EXPECT_LE(server_worker().shared_ring()->size(), 32U);
}

// Messages that have arrived and were not polled are lost with the queue pair unless it is drained first.
TEST_P(RdmaDrain, ConnectionsThatEndWithPacketsUnderWay) {
  for (int round = 0; round < 30; ++round) {
    Attacker attacker(*client_device_, *client_worker_, *server_worker_);
    attacker.connect();
    pass(milliseconds(1));  // The setup keeps the simulated processors busy.
    for (unsigned i = 0; i < attacker.theirs.receives; ++i) ASSERT_TRUE(attacker.post_message(100));
    pass(std::chrono::nanoseconds(200 * round));
    attacker.connection->abort();
    attacker.connection.reset();
    pass(milliseconds(2));
  }
  expect_undisturbed();
}

TEST_P(RdmaDrain, AQueuePairThatIsReadyToReceiveOnly) {
  for (int round = 0; round < 10; ++round) {
    auto attacker = std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_);
    server_device().connects_refused = 1;
    EXPECT_FALSE(attacker->try_connect());
    attacker->ready();
    pass(milliseconds(1));
    for (unsigned i = 0; i < attacker->theirs.receives; ++i) ASSERT_TRUE(attacker->post_message(100));
    pass(std::chrono::nanoseconds(500 * round));
    attacker.reset();
    pass(milliseconds(2));
  }
  expect_undisturbed();
}

// Events that the device reports while a handler blocks the loop are processed afterwards. A queue pair that was
// abandoned before would keep its part of the queue forever.
TEST_P(RdmaDrain, ALoopThatStoodStillGivesNothingUp) {
  rdma::RdmaWorker& end = server_worker();
  ASSERT_TRUE(end.device().acquire_queue_pair());
  rdma::DrainingQueuePair one(end);
  Time now = loop_->now();
  one.start({.pair = *end.make_pair(4, 4),
             .channel = nullptr,
             .ring = end.shared_ring(),
             .liveness = nullptr,
             .shared_receives = 4,
             .connecting = true,
             .broken = true},
            now);
  EXPECT_FALSE(one.advance(now, true));
  EXPECT_FALSE(one.advance(now += std::chrono::seconds(5), true));
  // While the loop runs, the time counts.
  const Time later = now + 2 * rdma::DrainingQueuePair::drain_max;
  while (now < later && !one.advance(now, true)) now += milliseconds(20);
  EXPECT_LT(now, later);
  EXPECT_FALSE(one.drained());
}

// Refuses to send while its queue is full.
class FullPair final : public rdma::QueuePair {
 public:
  std::uint32_t number() const noexcept override { return 1U << 23; }
  std::size_t inline_bytes() const noexcept override { return 0; }
  std::size_t send_requests() const noexcept override { return 1; }
  Result<void> connect(const rdma::QueuePairRoute&) override { return {}; }
  void allow(rdma::Access) noexcept override {}
  Result<void> post_send(std::span<const rdma::SendRequest> requests) override {
    if (full) return hawser::fail(ErrorCode::limit_exceeded, "full");
    sent.push_back(requests.front().id);
    return {};
  }
  Result<void> post_receive(std::span<const rdma::ReceiveRequest>) override { return {}; }
  void fail() noexcept override {}

  bool full = true;
  std::vector<std::uint64_t> sent;
};

TEST_P(RdmaDrain, AFullSendQueueDelaysTheMarker) {
  rdma::RdmaWorker& end = server_worker();
  ASSERT_TRUE(end.device().acquire_queue_pair());
  rdma::DrainingQueuePair one(end);
  auto made = std::make_unique<FullPair>();
  FullPair& pair = *made;
  Time now = loop_->now();
  one.start({.pair = std::move(made),
             .channel = nullptr,
             .ring = end.shared_ring(),
             .liveness = nullptr,
             .shared_receives = 4,
             .connecting = true,
             .broken = true,
             .last_receive_reached = true},
            now);
  EXPECT_FALSE(one.advance(now, true));
  EXPECT_FALSE(one.advance(now += milliseconds(1), true));
  pair.full = false;
  EXPECT_FALSE(one.advance(now += milliseconds(1), true));
  EXPECT_FALSE(one.advance(now += milliseconds(1), true));
  ASSERT_EQ(pair.sent.size(), 1U);
  one.on_completion({.id = pair.sent.front(), .status = rdma::WorkStatus::flushed});
  EXPECT_TRUE(one.advance(now, true));
  EXPECT_TRUE(one.drained());
}

// Chunks of an ended connection that the application keeps are no longer a part of the queue.
TEST_P(RdmaDrain, MessagesThatOutliveTheirConnections) {
  make(8);
  std::vector<Buffer> kept;
  for (int round = 0; round < 8; ++round) {
    auto pair = honest();
    pair->at_server.keep = true;
    for (int i = 0; i < 4; ++i) {
      send(*pair->client, "kept");
      pass(milliseconds(1));
    }
    for (Buffer& buffer : pair->at_server.kept) kept.push_back(std::move(buffer));
    pair.reset();
    pass(std::chrono::seconds(3));
  }
  EXPECT_GT(server_worker().shared_ring()->held(), 0U);
  // Paused connections use up all receives for which they have credits. Only those of the well-behaved client remain.
  std::vector<std::unique_ptr<Attacker>> paused;
  for (int i = 0; i < 8; ++i) {
    paused.push_back(std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_));
    paused.back()->connect();
    paused.back()->connection->pause();
    for (unsigned j = 0; j < paused.back()->theirs.receives; ++j) ASSERT_TRUE(paused.back()->post_message(8));
    pass(milliseconds(1));
    EXPECT_FALSE(paused.back()->sink.closed);
  }
  expect_undisturbed();
  kept.clear();
  for (auto& one : paused) one->connection.reset();
}

// Connections are made, send, pause and end on either side, at random times.
TEST_P(RdmaDrain, AnySchedule) {
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<std::unique_ptr<HonestPair>> pairs;
    std::vector<std::unique_ptr<Attacker>> killed;
    for (int step = 0; step < 300; ++step) {
      const std::size_t at = pairs.empty() ? 0 : random.below(pairs.size());
      const double choice = static_cast<double>(random.below(1000)) / 1000;
      if (pairs.size() < 6 && choice < 0.15) {
        pairs.push_back(honest());
      } else if (choice < 0.2) {
        killed.push_back(std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_));
        killed.back()->connect();
        for (unsigned i = 0; i < random.below(killed.back()->theirs.receives + 1); ++i) killed.back()->post_message(50);
        if (random.chance(0.5)) killed.back()->die();
      } else if (!pairs.empty() && choice < 0.3) {
        if (random.chance(0.5)) pairs[at]->server->abort();
        if (random.chance(0.3)) pairs[at]->client->close();
        pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(at));
      } else if (!pairs.empty() && choice < 0.4) {
        transport::Connection& server = *pairs[at]->server;
        server.paused() ? server.resume() : server.pause();
      } else if (!pairs.empty() && choice < 0.8) {
        send(*pairs[at]->client, std::string(random.below(7000), 'x'));
      } else {
        send(*innocent_->client, "innocent");
      }
      if (random.chance(0.7)) pass(std::chrono::nanoseconds(random.below(random.chance(0.1) ? 50'000'000 : 20'000)));
      if (killed.size() > 4) {
        killed.front()->connection.reset();
        killed.erase(killed.begin());
      }
    }
    pairs.clear();
    for (auto& one : killed) one->connection.reset();
    killed.clear();
    pass(std::chrono::seconds(3));
    expect_undisturbed();
    EXPECT_EQ(connections(), 1U);
    EXPECT_EQ(server_worker().shared_ring()->held(), 0U);
    EXPECT_EQ(server_worker().shared_ring()->disowned(), 0U);
  }
}

// The credits are not checked any more, but the receives that it may use up are still counted.
TEST_P(RdmaDrain, AFloodWhileTheConnectionEnds) {
  auto attacker = std::make_unique<Attacker>(*client_device_, *client_worker_, *server_worker_);
  attacker->ours.receives = 64;  // More than the server has, so the last message of the server waits for a receive.
  attacker->connect();
  for (int i = 0; i < 20; ++i) {
    send(*attacker->connection, "to nobody");
    pass(milliseconds(1));
  }
  attacker->connection.reset();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(attacker->post_message(8));
    pass(milliseconds(1));
  }
  attacker->poll(false);
  EXPECT_GT(attacker->succeeded, 0U);
  EXPECT_LE(attacker->succeeded, attacker->theirs.receives + 2);
  server_device().rnr_sent = 0;
  attacker.reset();
}

// A flood ends the connection that sends it. The others lose at most the receives that it had used up by then, and get
// them back.
TEST_P(RdmaDrain, APeerThatIgnoresItsCredits) {
  for (int round = 0; round < 10; ++round) {
    Attacker attacker(*client_device_, *client_worker_, *server_worker_);
    attacker.connect();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(attacker.post_message(100));
    pass(milliseconds(5));
    EXPECT_EQ(attacker.sink.reason.code, ErrorCode::protocol_error);
    attacker.connection.reset();
    expect_served(*innocent_, 2);
  }
  server_device().rnr_sent = 0;  // Replies to the attacker's own packets are not counted.
}

}  // namespace
}  // namespace hawser::transport
