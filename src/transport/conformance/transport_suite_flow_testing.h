#pragma once

#include <string>
#include <thread>
#include <vector>

#include "transport/conformance/transport_fixture_testing.h"

// Tests of back-pressure, backlog and positions.
namespace hawser::transport {

TEST_P(TransportSuite, APausedReceiverHoldsItsPeerBack) {
  const std::size_t total = GetParam().held_back_bytes_max + (many(24, 8) << 20);
  for (const std::size_t payload : {std::size_t{100}, std::size_t{60'000}, std::size_t{2} << 20}) {
    make_pair();
    const auto one = make_sent(28, payload, 7, false);
    const std::size_t count = payload == 100 ? many(50'000, 10'000) : total / payload;
    server().sink.record = false;
    server().publish();
    server().on([&] { server().connection->pause(); });
    std::size_t sent = 0;
    while (sent < count) {
      client().on([&] {
        for (int i = 0; i < 16 && sent < count; ++i, ++sent) EXPECT_TRUE(send(client(), *one));
      });
    }
    client().loop->rest(std::chrono::milliseconds(20));
    EXPECT_EQ(server().sink.count.load(), 0U) << "a message while paused";
    if (payload != 100) {
      client().on([&] {
        EXPECT_GE(client().connection->backlog() + GetParam().held_back_bytes_max, count * payload)
            << "more is taken than a paused receiver may hold";
      });
    }
    std::size_t wrong = 0;
    server().sink.on_each = [&](const Message& message) {
      wrong += as_text(message.payload) != one->payload;
      if (server().sink.count.load() % 7 == 0) {
        server().connection->pause();
        server().loop->loop().post([&] {
          if (server().connection != nullptr) server().connection->resume();
        });
      }
    };
    server().publish();
    server().on([&] {
      EXPECT_TRUE(server().connection->paused());
      server().connection->resume();
    });
    ASSERT_TRUE(server().until_received(count));
    EXPECT_EQ(server().on([&] { return wrong; }), 0U);
    EXPECT_TRUE(client().until([&] { return client().connection->backlog() == 0; }));
  }
}

TEST_P(TransportSuite, MemoryForPayloadsIsCharged) {
  constexpr std::size_t budget_bytes = 256 * 1024;
  make_charged_pair(budget_bytes);
  Batch batch;
  for (const std::size_t payload : {100U, 3U << 20, 200U, 100'000U, 3U << 20, 300U}) {
    batch.push_back(make_sent(28, payload, batch.size() + 1, true));
  }
  std::size_t used_max = 0;
  server().sink.on_each = [&](const Message&) { used_max = std::max(used_max, budget->used()); };
  server().publish();
  client().on([&] {
    for (const auto& one : batch) EXPECT_TRUE(send(client(), *one));
  });
  ASSERT_TRUE(server().until_received(batch.size()));
  until_notified(client(), batch);
  server().on([&] {
    EXPECT_TRUE(server().connection->capabilities().charges);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const TransportSink::Received& received = server().sink.messages[i];
      EXPECT_TRUE(received.head == batch[i]->head) << "head of message " << i;
      if (batch[i]->payload.size() > budget_bytes && batch[i]->payload.size() > GetParam().set_aside_bytes) {
        EXPECT_TRUE(received.discarded) << "message " << i << " takes more memory than the account has";
      }
      if (batch[i]->payload.size() < budget_bytes) {
        EXPECT_FALSE(received.discarded) << "message " << i;
      }
      EXPECT_TRUE(received.payload == (received.discarded ? std::string() : batch[i]->payload)) << "message " << i;
    }
    EXPECT_LE(used_max, budget_bytes);
    EXPECT_EQ(account->arriving(), 0U) << "whoever keeps a message pays for it";
  });
}

// Payloads that are fetched before their turn must not take the memory of earlier ones.
TEST_P(TransportSuite, PayloadsInARowShareTheMemory) {
  constexpr std::size_t budget_bytes = 256 * 1024;
  make_charged_pair(budget_bytes);
  Batch batch;
  std::size_t used_max = 0;
  server().sink.on_each = [&](const Message&) { used_max = std::max(used_max, budget->used()); };
  server().publish();
  while (batch.size() < 16) batch.push_back(make_sent(28, 100'000, batch.size() + 1, true));
  client().on([&] {
    for (const auto& one : batch) EXPECT_TRUE(send(client(), *one));
  });
  expect_received(client(), server(), batch);
  server().on([&] {
    EXPECT_LE(used_max, budget_bytes);
    EXPECT_EQ(account->arriving(), 0U);
  });
}

TEST_P(TransportSuite, TheBacklogIsTold) {
  constexpr std::size_t mark = 256 * 1024;
  const auto one = make_sent(28, 100'000, 7, false);
  std::size_t backlog_then = SIZE_MAX;
  client().sink.on_each_drained = [&] { backlog_then = client().connection->backlog(); };
  server().on([&] { server().connection->pause(); });
  std::size_t sent = 0;
  client().on([&] {
    client().connection->set_high_watermark(mark);
    EXPECT_TRUE(send(client(), *one));
    ++sent;
  });
  client().loop->rest(std::chrono::milliseconds(5));
  client().on([&] { EXPECT_EQ(client().sink.drained, 0) << "the mark was never passed"; });
  client().on([&] {
    const std::size_t enough = GetParam().held_back_bytes_max + 4 * mark;
    while (sent * one->payload.size() < enough) {
      EXPECT_TRUE(send(client(), *one));
      ++sent;
    }
  });
  client().loop->rest(std::chrono::milliseconds(5));
  client().on([&] {
    EXPECT_GT(client().connection->backlog(), mark);
    EXPECT_EQ(client().sink.drained, 0);
  });
  server().on([&] { server().connection->resume(); });
  ASSERT_TRUE(server().until_received(sent));
  EXPECT_TRUE(client().until([&] { return client().sink.drained == 1; }));
  client().on([&] { EXPECT_LE(backlog_then, mark / 2); });
}

// Bytes that have arrived lie before sent(). Bytes that were committed in a tick are sent at its end.
TEST_P(TransportSuite, PositionsTellWhatMayHaveArrived) {
  std::vector<std::uint64_t> positions;
  std::size_t seed = 0;
  server().sink.record = false;
  server().publish();
  for (const std::size_t payload : sizes()) {
    for (int i = 0; i < 3; ++i) {
      const auto one = make_sent(28, payload, ++seed, false);
      client().on([&] {
        const std::uint64_t before = client().connection->committed();
        EXPECT_TRUE(send(client(), *one));
        positions.push_back(client().connection->committed());
        EXPECT_GT(positions.back(), before);
        const std::size_t arrived = server().sink.count.load();
        EXPECT_LE(client().connection->sent(), client().connection->committed());
        if (arrived != 0) {
          EXPECT_GE(client().connection->sent(), positions[arrived - 1]);
        }
      });
    }
  }
  ASSERT_TRUE(server().until_received(positions.size()));
  EXPECT_TRUE(client().until([&] { return client().connection->sent() == client().connection->committed(); }));
}

TEST_P(TransportSuite, FlushDoesNotWaitForTheTick) {
  client().on([&] {
    EXPECT_TRUE(client().send("now", std::string_view()));
    EXPECT_LT(client().connection->sent(), client().connection->committed());
    client().connection->flush();
    EXPECT_EQ(client().connection->sent(), client().connection->committed());
    // The server's thread receives the message while this thread waits here.
    if (!GetParam().two_loops) return;
    for (int i = 0; i < 200'000 && server().sink.count.load() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    EXPECT_EQ(server().sink.count.load(), 1U);
  });
  EXPECT_TRUE(server().until_received(1));
}

}  // namespace hawser::transport
