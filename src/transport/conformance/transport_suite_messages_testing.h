#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "transport/conformance/transport_fixture_testing.h"

// Tests of messages of any shape, of receive buffers, and of the lifetime of payloads.
namespace hawser::transport {

TEST_P(TransportSuite, TellsWhatItIs) {
  const std::string_view name = GetParam().make()->name();
  for (TransportSide* side : {&client(), &server()}) {
    side->on([&] {
      const Capabilities capabilities = side->connection->capabilities();
      EXPECT_EQ(side->connection->transport(), name);
      EXPECT_GE(capabilities.message_bytes_max, TransportPair::message_bytes_max / 2);
      EXPECT_LE(capabilities.message_bytes_max, TransportPair::message_bytes_max);
      EXPECT_GE(capabilities.head_bytes_max, 16U * 1024) << "a frame with metadata and a small body must fit";
      EXPECT_LE(capabilities.head_bytes_max, capabilities.message_bytes_max);
      EXPECT_NE(capabilities.receive_buffer_bytes_min, 0U);
      EXPECT_EQ(side->connection->peer(), "peer:1") << "who is there is what the stream says";
      EXPECT_FALSE(side->connection->paused());
      EXPECT_EQ(side->connection->backlog(), 0U);
      EXPECT_EQ(side->connection->committed(), side->connection->sent());
    });
  }
}

TEST_P(TransportSuite, AnyHeadAndPayloadArriveInOrder) {
  for (const bool up : {true, false}) {
    TransportSide& from = up ? client() : server();
    TransportSide& to = up ? server() : client();
    Batch batch;
    std::size_t seed = 1;
    for (const std::size_t payload : sizes()) {
      for (const std::size_t head : {28U, 1U, 4000U}) {
        ++seed;
        batch.push_back(make_sent(head, payload, seed, seed % 3 != 0));
        // Each message has a tick of its own here; the messages below share one.
        from.on([&] { EXPECT_TRUE(send(from, *batch.back(), 1 + seed % 5, seed)); });
      }
    }
    for (const std::size_t payload : sizes()) {
      ++seed;
      batch.push_back(make_sent(100, payload, seed, seed % 2 == 0));
    }
    from.on([&] {
      for (std::size_t i = batch.size() - sizes().size(); i < batch.size(); ++i) {
        EXPECT_TRUE(send(from, *batch[i], 3, i));
      }
    });
    expect_received(from, to, batch);
    EXPECT_TRUE(from.until([&] { return from.connection->backlog() == 0; }));
    from.on([&] { EXPECT_EQ(from.connection->sent(), from.connection->committed()); });
    to.on([&] { EXPECT_GE(to.connection->arrived(), std::uint64_t{sizes().back()}); });
  }
}

TEST_P(TransportSuite, ManySmallMessages) {
  constexpr std::size_t count = 20'000;
  server().sink.record = false;
  std::size_t wrong = 0;
  server().sink.on_each = [&](const Message& message) {
    std::size_t number = 0;
    std::memcpy(&number, message.head.data(), sizeof number);
    wrong += number != server().sink.count.load() || message.head.size() != 8 + number % 200;
  };
  server().publish();
  for (std::size_t sent = 0; sent < count;) {
    client().on([&] {
      for (int i = 0; i < 500; ++i, ++sent) {
        std::byte* const head = client().connection->reserve(8 + sent % 200);
        std::memcpy(head, &sent, sizeof sent);
        client().connection->commit(8 + sent % 200, {}, nullptr);
      }
    });
  }
  ASSERT_TRUE(server().until_received(count));
  EXPECT_EQ(server().on([&] { return wrong; }), 0U);
}

TEST_P(TransportSuite, PingPong) {
  const std::size_t rounds = many(3000, 600);
  for (TransportSide* side : {&client(), &server()}) {
    side->sink.record = false;
    side->sink.on_each = [side, rounds](const Message& message) {
      if (side->sink.count.load() < rounds) side->send(as_text(message.head), as_text(message.payload));
    };
    side->publish();
  }
  client().on([&] { client().send("ping", test_bytes(100, 1)); });
  EXPECT_TRUE(client().until_received(rounds - 1));
  EXPECT_TRUE(server().until_received(rounds - 1));
}

TEST_P(TransportSuite, TheLongestMessages) {
  const Capabilities capabilities = client().on([&] { return client().connection->capabilities(); });
  Batch batch;
  batch.push_back(make_sent(capabilities.head_bytes_max, 0, 1, false));
  batch.push_back(make_sent(28, capabilities.message_bytes_max - 28, 2, true));
  const std::size_t pending = std::min(capabilities.head_bytes_max, capabilities.message_bytes_max / 2);
  batch.push_back(make_sent(pending, capabilities.message_bytes_max - pending, 3, true));
  batch.push_back(make_sent(28, 5, 4, false));
  client().on([&] {
    for (const auto& one : batch) EXPECT_TRUE(send(client(), *one, 3));
  });
  expect_received(client(), server(), batch);
}

TEST_P(TransportSuite, AnOwnerIsToldOfNoPayload) {
  TransportCompletion owner;
  client().on([&] {
    client().send("head", std::span<const ConstBuffer>(), &owner);
    EXPECT_EQ(owner.notified.load(), 1);
    client().send("head", std::string_view(), &owner);
  });
  ASSERT_TRUE(server().until_received(2));
  EXPECT_EQ(owner.notified.load(), 2);
}

// The memory of a payload may be freed as soon as copy_and_release() returns, in any state of the payload.
TEST_P(TransportSuite, DetachLetsMemoryGo) {
  for (const int when : {0, 1, 2}) {
    make_pair();
    if (when == 2) server().on([&] { server().connection->pause(); });
    Batch batch;
    std::size_t seed = 0;
    for (const std::size_t payload : sizes()) batch.push_back(make_sent(50, payload, ++seed, true));
    std::vector<std::string> payloads;
    for (const auto& one : batch) payloads.push_back(one->payload);
    const auto let_go = [&] {
      for (const auto& one : batch) {
        const int notified = one->owner.notified.exchange(0);
        EXPECT_LE(notified, 1);
        if (notified == 0) client().connection->copy_and_release(one->owner);
        std::fill(one->payload.begin(), one->payload.end(), '!');
        std::string().swap(one->payload);
      }
    };
    client().on([&] {
      for (const auto& one : batch) EXPECT_TRUE(send(client(), *one, 2));
      if (when == 0) let_go();
    });
    if (when != 0) client().on(let_go);
    if (when == 2) server().on([&] { server().connection->resume(); });
    ASSERT_TRUE(server().until_received(batch.size()));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      EXPECT_EQ(batch[i]->owner.notified.load(), 0) << "told although detached";
      server().on([&] { EXPECT_TRUE(server().sink.messages[i].payload == payloads[i]) << "message " << i; });
    }
  }
}

TEST_P(TransportSuite, PayloadsGoWhereTheyAreWanted) {
  using Kind = ReceiveBuffer::Kind;
  Batch batch;
  std::vector<std::byte> memory(TransportPair::message_bytes_max);
  Kind kind = Kind::own;
  std::size_t misplaced = 0;
  std::size_t placed_of_large = 0;
  bool asked = false;
  server().sink.where = [&](Bytes head, std::size_t payload_bytes) -> ReceiveBuffer {
    asked = true;
    misplaced += head.size() != 28;
    misplaced += payload_bytes < server().connection->capabilities().receive_buffer_bytes_min;
    placed_of_large += payload_bytes > (1U << 20);
    kind = static_cast<Kind>((head[0] & std::byte{0x7f}) == std::byte{0} ? 0 : static_cast<int>(head[0]) % 3);
    return {kind, kind == Kind::given ? MutableBytes(memory) : MutableBytes()};
  };
  server().sink.on_each = [&](const Message& message) {
    if (!std::exchange(asked, false)) return;
    misplaced += message.discarded != (kind == Kind::discard);
    misplaced += message.discarded && !message.payload.empty();
    misplaced += (message.payload.data() == memory.data()) != (kind == Kind::given);
    misplaced += kind == Kind::given && message.payload_block != nullptr;
  };
  server().publish();
  std::size_t seed = 0;
  std::size_t large = 0;
  for (const std::size_t payload : sizes()) {
    for (int i = 0; i < 6; ++i) {
      batch.push_back(make_sent(28, payload, ++seed, true));
      batch.back()->head[0] = static_cast<char>(i + 1);
      large += payload > (1U << 20);
    }
  }
  for (const auto& one : batch) {
    client().on([&] { EXPECT_TRUE(send(client(), *one)); });
  }
  ASSERT_TRUE(server().until_received(batch.size()));
  until_notified(client(), batch);
  server().on([&] {
    EXPECT_EQ(misplaced, 0U);
    EXPECT_EQ(placed_of_large, large) << "select_receive_buffer() is asked about whatever is large";
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const TransportSink::Received& got = server().sink.messages[i];
      EXPECT_TRUE(got.head == batch[i]->head);
      EXPECT_TRUE(got.discarded || got.payload == batch[i]->payload) << "message " << i;
    }
  });
}

// After revoke_receive_buffer() the memory belongs to the receiver again, and later messages are delivered as usual.
TEST_P(TransportSuite, APlaceIsTakenBack) {
  std::vector<std::byte> memory(TransportPair::message_bytes_max);
  std::size_t given = 0;
  std::size_t spoiled = 0;
  server().sink.where = [&](Bytes, std::size_t payload_bytes) -> ReceiveBuffer {
    given = payload_bytes;
    return {ReceiveBuffer::Kind::given, memory};
  };
  server().sink.on_each = [&](const Message& message) {
    given = 0;
    spoiled += message.discarded && !message.payload.empty();
  };
  server().publish();
  Batch batch;
  for (std::size_t i = 0; i < many(20, 4); ++i) {
    batch.push_back(make_sent(28, std::size_t{3} << 20, i, true));
    client().on([&] { EXPECT_TRUE(send(client(), *batch.back())); });
    server().on([&] {
      if (given == 0) return;
      server().connection->revoke_receive_buffer(memory.data());
      std::fill(memory.begin(), memory.end(), std::byte{0x5a});
    });
    ASSERT_TRUE(server().until_received(i + 1));
    server().on([&] {
      const TransportSink::Received& got = server().sink.messages.back();
      if (!got.discarded) {
        EXPECT_TRUE(got.payload == batch[i]->payload);
      } else {
        EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
      }
      EXPECT_EQ(spoiled, 0U);
      server().connection->revoke_receive_buffer(memory.data());  // No payload uses it: no effect.
    });
  }
  until_notified(client(), batch);
}

// Kept buffers stay valid: while messages arrive, after the connection has ended, and on another thread.
TEST_P(TransportSuite, WhatIsKeptLasts) {
  server().sink.keep = true;
  Batch batch;
  std::size_t seed = 0;
  for (int round = 0; round < 4; ++round) {
    for (const std::size_t payload : sizes()) batch.push_back(make_sent(28 + payload % 100, payload, ++seed, true));
  }
  client().on([&] {
    for (const auto& one : batch) EXPECT_TRUE(send(client(), *one));
  });
  expect_received(client(), server(), batch);
  std::vector<Buffer> kept;
  server().on([&] {
    kept = std::move(server().sink.kept);
    server().sink.kept.clear();
    server().connection.reset();
  });
  client().on([&] { client().connection.reset(); });
  pair.reset();
  std::thread([&] {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      EXPECT_TRUE(kept[2 * i].text() == batch[i]->head) << "message " << i;
      EXPECT_TRUE(kept[2 * i + 1].text() == batch[i]->payload) << "message " << i;
    }
    kept.clear();
  }).join();
}

// Messages are delivered independently of how many buffers a receiver keeps.
TEST_P(TransportSuite, KeepingMuchStopsNothing) {
  server().on([&] {
    server().sink.keep = true;
    server().sink.record = false;
  });
  const auto one = make_sent(28, 100'000, 1, false);
  const std::size_t count = many(600, 200);
  for (std::size_t i = 0; i < count; ++i) {
    client().on([&] { EXPECT_TRUE(send(client(), *one)); });
  }
  ASSERT_TRUE(server().until_received(count));
  server().on([&] {
    for (std::size_t i = 1; i < server().sink.kept.size(); i += 2) {
      EXPECT_TRUE(server().sink.kept[i].text() == one->payload);
    }
    server().sink.kept.clear();
    server().sink.keep = false;
  });
  for (int i = 0; i < 100; ++i) {
    client().on([&] { EXPECT_TRUE(send(client(), *one)); });
  }
  ASSERT_TRUE(server().until_received(count + 100));
}

}  // namespace hawser::transport
