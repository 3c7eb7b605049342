#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "transport/conformance/transport_fixture_testing.h"

// Tests of the ends of connections.
namespace hawser::transport {

TEST_P(TransportSuite, CloseSendsAllThatIsCommitted) {
  for (const bool held_back : {false, true}) {
    make_pair();
    Batch batch;
    for (std::size_t i = 0; i < many(300, 100); ++i)
      batch.push_back(make_sent(28, i % 10 == 0 ? 400'000 : 3000, i, i % 2 == 0));
    if (held_back) server().on([&] { server().connection->pause(); });
    client().on([&] {
      for (const auto& one : batch) EXPECT_TRUE(send(client(), *one));
      client().connection->close();
      EXPECT_EQ(client().connection->reserve(10), nullptr) << "nothing is sent after close()";
    });
    if (held_back) {
      client().loop->rest(std::chrono::milliseconds(5));
      server().on([&] { server().connection->resume(); });
    }
    expect_received(client(), server(), batch);
    EXPECT_TRUE(server().until_closed());
    server().on([&] {
      EXPECT_EQ(server().sink.closed[0].initiator, Initiator::peer);
      EXPECT_FALSE(server().sink.closed[0].text.empty());
      server().connection->abort();
    });
    EXPECT_TRUE(client().until_closed());
    client().on([&] { EXPECT_EQ(client().connection->sent(), client().connection->committed()); });
  }
}

TEST_P(TransportSuite, CloseOfAnIdleConnection) {
  server().on([&] { server().connection->close(); });
  EXPECT_TRUE(client().until_closed());
  client().on([&] {
    EXPECT_EQ(client().connection->reserve(10), nullptr);
    client().connection.reset();
  });
  EXPECT_TRUE(server().until_closed());
}

TEST_P(TransportSuite, AbortTellsOwnersAndNobodyElse) {
  Batch batch;
  for (std::size_t i = 0; i < 40; ++i) batch.push_back(make_sent(28, 500'000, i, true));
  server().on([&] { server().connection->pause(); });
  client().on([&] {
    for (const auto& one : batch) EXPECT_TRUE(send(client(), *one));
  });
  std::uint64_t sent = 0;
  std::uint64_t committed = 0;
  client().on([&] {
    client().connection->abort();
    sent = client().connection->sent();
    committed = client().connection->committed();
    EXPECT_EQ(client().connection->reserve(10), nullptr);
    client().connection->flush();
    client().connection->close();
    client().connection->abort();
  });
  for (const auto& one : batch) EXPECT_EQ(one->owner.notified.load(), 1);
  client().loop->rest(std::chrono::milliseconds(2));
  client().on([&] {
    EXPECT_TRUE(client().sink.closed.empty()) << "abort() is not told";
    EXPECT_EQ(client().connection->sent(), sent);
    EXPECT_EQ(client().connection->committed(), committed);
  });
  server().on([&] { server().connection->resume(); });
  EXPECT_TRUE(server().until_closed());
}

TEST_P(TransportSuite, AbortFromWithinCallbacks) {
  enum class Where { message, select, drained, released };
  struct Aborting final : SendCompletion {
    void on_send_complete() noexcept override {
      ++notified;
      if (connection != nullptr) connection->abort();
    }
    Connection* connection = nullptr;
    std::atomic<int> notified{0};
  };
  for (const Where where : {Where::message, Where::select, Where::drained, Where::released}) {
    make_pair();
    TransportSide& aborts = where == Where::message || where == Where::select ? server() : client();
    TransportSide& other = &aborts == &server() ? client() : server();
    if (where == Where::message) server().sink.on_each = [&](const Message&) { server().connection->abort(); };
    if (where == Where::select) {
      server().sink.where = [&](Bytes, std::size_t) -> ReceiveBuffer {
        server().connection->abort();
        return {};
      };
    }
    if (where == Where::drained) {
      client().sink.on_each_drained = [&] { client().connection->abort(); };
      client().on([&] { client().connection->set_high_watermark(1); });
      // A receiver that keeps up may leave no backlog.
      server().on([&] { server().connection->pause(); });
    }
    Aborting owner;
    if (where == Where::released) owner.connection = client().connection.get();
    const std::string payload = test_bytes(2'000'000, 1);
    int loaned = 0;
    client().on([&] {
      for (int i = 0; i < 10; ++i) loaned += client().send("head", payload, &owner) ? 1 : 0;
    });
    if (where == Where::drained) {
      server().on([&] {
        if (server().sink.closed.empty()) server().connection->resume();
      });
    }
    EXPECT_TRUE(other.until_closed());
    other.on([&] { other.connection.reset(); });
    client().until([&] { return owner.notified.load() == loaned; });
    EXPECT_EQ(owner.notified.load(), loaned);
    aborts.on([&] { EXPECT_TRUE(aborts.sink.closed.empty()); });
    client().on([&] { EXPECT_EQ(client().sink.drained, where == Where::drained ? 1 : 0); });
    if (where == Where::message) {
      EXPECT_EQ(server().sink.count.load(), 1U);
    }
    if (where == Where::select) {
      EXPECT_EQ(server().sink.count.load(), 0U);
    }
  }
}

TEST_P(TransportSuite, APeerThatVanishesIsTold) {
  for (const bool paused : {false, true}) {
    make_pair();
    Batch batch;
    for (std::size_t i = 0; i < 10; ++i) batch.push_back(make_sent(28, 1000, i, false));
    if (paused) server().on([&] { server().connection->pause(); });
    client().on([&] {
      for (const auto& one : batch) EXPECT_TRUE(send(client(), *one));
      client().connection->flush();
    });
    client().on([&] { client().connection.reset(); });
    if (paused) {
      server().loop->rest(std::chrono::milliseconds(2));
      server().on([&] {
        if (server().sink.closed.empty()) server().connection->resume();
      });
    }
    EXPECT_TRUE(server().until_closed());
    server().on([&] {
      EXPECT_NE(server().sink.closed[0].code, ErrorCode::protocol_error);
      EXPECT_EQ(server().connection->reserve(1), nullptr);
      EXPECT_EQ(server().sink.messages.size(), 10U) << "what had left before still arrives";
    });
  }
}

// Owners are notified of the end, whichever side is destroyed and at any moment.
TEST_P(TransportSuite, DestroyedAtAnyTime) {
  for (std::size_t seed = 0; seed < many(40, 8); ++seed) {
    make_pair();
    std::mt19937_64 random(seed);
    std::vector<std::byte> memory(TransportPair::message_bytes_max);
    server().sink.keep = seed % 3 == 0;
    server().sink.record = false;
    server().publish();
    server().sink.where = [&](Bytes, std::size_t payload_bytes) -> ReceiveBuffer {
      switch (payload_bytes % 3) {
        case 0: return {ReceiveBuffer::Kind::given, memory};
        case 1: return {ReceiveBuffer::Kind::discard, {}};
        default: return {};
      }
    };
    Batch batch;
    const auto go_on = [&] {
      const std::size_t count = random() % 20;
      for (std::size_t i = 0; i < count; ++i) {
        const std::vector<std::size_t> all = sizes();
        batch.push_back(make_sent(random() % 300, all[random() % all.size()], random(), true));
        if (!send(client(), *batch.back(), 1 + random() % 4, random())) {
          EXPECT_EQ(batch.back()->owner.notified.load(), 0);
          batch.pop_back();
        }
      }
    };
    for (std::uint64_t i = random() % 5; i != 0; --i) {
      client().on(go_on);
      if (random() % 4 == 0) server().on([&] { server().connection->pause(); });
      if (random() % 4 == 0) server().on([&] { server().connection->resume(); });
    }
    const bool client_goes = random() % 2 == 0;
    TransportSide& goes = client_goes ? client() : server();
    goes.on([&] { goes.connection.reset(); });
    if (client_goes) {
      server().on([&] { server().connection->resume(); });
      EXPECT_TRUE(server().until_closed());
    } else {
      EXPECT_TRUE(client().until_closed());
      client().on([&] { client().connection.reset(); });
    }
    for (const auto& one : batch) EXPECT_EQ(one->owner.notified.load(), 1) << "seed " << seed;
  }
}

TEST_P(TransportSuite, ConnectionsKeepTheirEnd) {
  client().on([&] { client().worker.reset(); });
  server().on([&] { server().worker.reset(); });
  client().on([&] { client().send("head", test_bytes(100'000, 1)); });
  EXPECT_TRUE(server().until_received(1));
}

TEST_P(TransportSuite, OneEndHasManyConnections) {
  struct One {
    std::unique_ptr<Connection> connection;
    TransportSink sink;
  };
  client().on([&] { client().connection.reset(); });
  server().on([&] { server().connection.reset(); });
  std::vector<std::unique_ptr<One>> clients;
  std::vector<std::unique_ptr<One>> servers;
  const auto put_aside = [](TransportSide& side, std::vector<std::unique_ptr<One>>& into) {
    side.on([&] {
      into.push_back(std::make_unique<One>());
      into.back()->connection = std::move(side.connection);
      into.back()->sink.connection = into.back()->connection.get();
      into.back()->connection->start(into.back()->sink);
    });
  };
  for (int i = 0; i < 20; ++i) {
    for (const auto step : {&TransportPair::select, &TransportPair::accept, &TransportPair::connect}) {
      const Result<void> done = (pair.get()->*step)();
      ASSERT_TRUE(done.has_value()) << done.error().describe();
    }
    pair->open(false);
    put_aside(client(), clients);
    put_aside(server(), servers);
  }
  client().on([&] {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const std::string head = "of " + std::to_string(i);
      std::byte* const to = clients[i]->connection->reserve(head.size());
      std::memcpy(to, head.data(), head.size());
      clients[i]->connection->commit(head.size(), {}, nullptr);
    }
  });
  for (std::size_t i = 0; i < servers.size(); ++i) {
    EXPECT_TRUE(server().until([&] { return servers[i]->sink.count.load() == 1; }));
    server().on([&] { EXPECT_EQ(servers[i]->sink.messages[0].head, "of " + std::to_string(i)); });
  }
  client().on([&] { clients.clear(); });
  server().on([&] { servers.clear(); });
}

TEST_P(TransportSuite, NothingIsLeftBehind) {
  if (!GetParam().keeps_descriptors.empty()) GTEST_SKIP() << GetParam().keeps_descriptors;
  const auto all_steps = [&](int steps) {
    int done = 0;
    for (const auto step : {&TransportPair::select, &TransportPair::accept, &TransportPair::connect}) {
      if (done++ == steps) break;
      const Result<void> result = (pair.get()->*step)();
      ASSERT_TRUE(result.has_value()) << result.error().describe();
    }
    if (steps == 4) {
      pair->open();
      client().on([&] { client().send("head", test_bytes(300'000, 1)); });
      ASSERT_TRUE(server().until([&] { return server().sink.count.load() != 0; }));
    }
    for (TransportSide* side : {&client(), &server()}) {
      side->on([&] {
        side->connection.reset();
        side->sink.count = 0;
        side->sink.messages.clear();
        side->sink.closed.clear();
        (side == &client() ? pair->client_pending : pair->server_pending).reset();
      });
    }
    client().loop->rest(std::chrono::milliseconds(1));
  };
  client().on([&] { client().connection.reset(); });
  server().on([&] {
    server().connection.reset();
    server().sink.closed.clear();
  });
  all_steps(4);  // Resources that are created once exist afterwards.
  const std::size_t before = descriptors();
  for (int round = 0; round < 10; ++round) {
    for (const int steps : {1, 2, 3, 4}) all_steps(steps);
  }
  // The loops of both sides, and threads that read a peer's memory, close the last ones in their own time.
  for (int i = 0; i < 3000 && descriptors() > before; ++i) client().loop->rest(std::chrono::milliseconds(10));
  EXPECT_LE(descriptors(), before);
}

}  // namespace hawser::transport
