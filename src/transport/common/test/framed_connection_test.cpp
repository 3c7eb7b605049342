#include "transport/common/framed_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/common/test/framed_testing.h"

namespace hawser::transport {
namespace {

struct CountingOwner final : SendCompletion {
  void on_send_complete() noexcept override { ++notified; }
  int notified = 0;
};

class FramedConnectionTest : public testing::Test {
 protected:
  explicit FramedConnectionTest(FramedOptions options = {}) {
    auto stream = std::make_unique<pipe::ScriptedStream>(script);
    connection = std::make_unique<FramedConnection>(loop, std::move(stream), options);
    sink.connection = connection.get();
    connection->start(sink);
  }

  bool send(std::string_view head, std::span<const ConstBuffer> payload = {}, SendCompletion* owner = nullptr) {
    std::byte* const to = connection->reserve(head.size());
    if (to == nullptr) return false;
    std::memcpy(to, head.data(), head.size());
    connection->commit(head.size(), payload, owner);
    return true;
  }
  static ConstBuffer piece_of(std::string_view text) { return {as_bytes(text).data(), text.size()}; }
  void tick() {
    loop.run([](Loop& self) -> Task<void> { co_await self.sleep(Duration::zero()); }(loop));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  pipe::StreamScript script;
  RecordingSink sink;
  std::unique_ptr<FramedConnection> connection;
};

// ---- Sending ----

TEST_F(FramedConnectionTest, WhatATickCommitsLeavesTogether) {
  const std::string payload = "payload";
  CountingOwner owner;
  send("one");
  send("two", std::array{piece_of(payload)}, &owner);
  send("");
  EXPECT_EQ(script.sends, 0);
  EXPECT_EQ(connection->backlog(), 11U + 18U + 8U);
  EXPECT_EQ(connection->committed(), 37U);
  EXPECT_EQ(connection->sent(), 0U);
  tick();
  EXPECT_EQ(script.sends, 1);
  EXPECT_EQ(script.sent, framed("one") + framed("two", payload) + framed(""));
  EXPECT_EQ(owner.notified, 1);
  EXPECT_EQ(connection->backlog(), 0U);
  EXPECT_EQ(connection->sent(), 37U);
}

TEST_F(FramedConnectionTest, FlushSendsNow) {
  send("now");
  connection->flush();
  EXPECT_EQ(script.sent, framed("now"));
}

TEST_F(FramedConnectionTest, MuchIsSentBeforeTheTickEnds) {
  const std::string payload = patterned(100'000);
  CountingOwner owner;
  send("large", std::array{piece_of(payload)}, &owner);
  EXPECT_EQ(script.sent, framed("large", payload));
  EXPECT_EQ(owner.notified, 1);
}

// The sends of a tick with `count` messages of `bytes` bytes each.
class FramedSegmentFillTest : public FramedConnectionTest {
 protected:
  struct Sends {
    int all = 0;
    std::size_t bytes_max = 0;
  };
  Sends sends_of(std::size_t bytes, int count) {
    const std::string payload = patterned(bytes - framed("h").size());
    script.sends = 0;
    script.sent.clear();
    Sends sends;
    std::size_t before = 0;
    const auto look = [&] {
      sends.bytes_max = std::max(sends.bytes_max, script.sent.size() - before);
      before = script.sent.size();
    };
    for (int i = 0; i < count; ++i) {
      send("h", std::array{piece_of(payload)});
      look();
    }
    tick();
    look();
    EXPECT_EQ(script.sent.size(), bytes * static_cast<std::size_t>(count));
    sends.all = script.sends;
    return sends;
  }
};

TEST_F(FramedSegmentFillTest, MessagesOfAPageFillASegment) {
  const Sends sends = sends_of(4132, 64);
  EXPECT_EQ(sends.all, 5) << "32 KiB a send would make 8";
  EXPECT_LE(sends.bytes_max, std::size_t{64 * 1024});
  EXPECT_GT(sends.bytes_max, std::size_t{54 * 1024});
}

TEST_F(FramedSegmentFillTest, NoSendIsALittleLongerThanASegment) {
  for (const std::size_t bytes : {1000, 5000, 9000, 12'000, 16'420, 20'000, 31'000}) {
    SCOPED_TRACE(bytes);
    EXPECT_LE(sends_of(bytes, 40).bytes_max, std::size_t{64 * 1024});
  }
}

TEST_F(FramedSegmentFillTest, ThePeerOfSmallMessagesStartsAfterFewerBytes) {
  const Sends sends = sends_of(164, 256);
  EXPECT_EQ(sends.all, 2) << "256 messages in one send would leave nothing that both sides do at a time";
  EXPECT_LE(sends.bytes_max, std::size_t{33 * 1024});
}

TEST_F(FramedSegmentFillTest, AMessageOfHalfASegmentIsSentAtOnce) {
  EXPECT_EQ(sends_of(32 * 1024, 8).all, 8);
  EXPECT_EQ(sends_of(16 * 1024, 8).all, 3) << "3, 3 and 2";
}

TEST_F(FramedConnectionTest, AnEmptyPayloadIsReleasedAtOnce) {
  CountingOwner owner;
  send("head", {}, &owner);
  EXPECT_EQ(owner.notified, 1);
}

TEST_F(FramedConnectionTest, PartialSendsGoOnWhenSendable) {
  const std::string payload = patterned(5000);
  CountingOwner owner;
  std::string expected;
  script.take = {3, 5, 0, 100};
  for (int i = 0; i < 3; ++i) {
    send("head", std::array{piece_of(payload)}, &owner);
    expected += framed("head", payload);
  }
  tick();
  EXPECT_EQ(script.sent.size(), 3U);
  tick();
  EXPECT_EQ(script.sends, 1) << "nothing is sent until the stream says so";
  // A stream that continues a send on its own reports how many bytes of the pieces it has accepted.
  script.sent += expected.substr(3, 2);
  script.sink->sendable(2);
  EXPECT_EQ(script.sent, expected.substr(0, 10));
  script.sink->sendable(0);
  script.sink->sendable(0);
  EXPECT_EQ(script.sent, expected.substr(0, 110));
  EXPECT_EQ(owner.notified, 0);
  EXPECT_EQ(connection->sent(), 110U);
  script.sink->sendable(0);
  EXPECT_EQ(script.sent, expected);
  EXPECT_EQ(owner.notified, 3);
}

TEST_F(FramedConnectionTest, DetachLetsAPayloadGo) {
  auto payload = std::make_unique<std::string>(patterned(5000));
  const std::string expected = framed("head", *payload);
  auto owner = std::make_unique<CountingOwner>();
  script.take = {100};
  send("head", std::array{piece_of(*payload)}, owner.get());
  tick();
  connection->copy_and_release(*owner);
  EXPECT_EQ(owner->notified, 0);
  owner.reset();
  payload.reset();
  script.sink->sendable(0);
  EXPECT_EQ(script.sent, expected);
}

// The owner sends its next message when it is notified. The message is sent once, in order, and after the current send.
TEST_F(FramedConnectionTest, AnOwnerMaySendWhenItIsTold) {
  struct Chained final : SendCompletion {
    void on_send_complete() noexcept override {
      if (left-- == 0) return test->connection->close();
      test->send("next", std::array{piece_of(payload)}, this);
    }
    FramedConnectionTest_AnOwnerMaySendWhenItIsTold_Test* test;
    std::string payload = patterned(40'000);
    int left = 3;
  } owner;
  owner.test = this;
  const std::string second = patterned(50'000, 7);
  CountingOwner other;
  script.take = {0};
  send("next", std::array{piece_of(owner.payload)}, &owner);
  send("second", std::array{piece_of(second)}, &other);
  script.sink->sendable(0);
  const std::string next = framed("next", owner.payload);
  EXPECT_EQ(script.sent, next + framed("second", second) + next + next + next);
  EXPECT_EQ(owner.left, -1);
  EXPECT_EQ(other.notified, 1);
  EXPECT_TRUE(script.finished) << "closed by the last one";
}

TEST_F(FramedConnectionTest, TellsWhenTheBacklogHasFallen) {
  const std::string payload = patterned(1000);
  connection->set_high_watermark(1500);
  CountingOwner owner;
  script.take = {0, 0, 1000};
  send("a", std::array{piece_of(payload)}, &owner);
  EXPECT_EQ(sink.drained, 0);
  send("b", std::array{piece_of(payload)}, &owner);
  tick();
  EXPECT_GT(connection->backlog(), 1500U);
  script.sink->sendable(0);
  EXPECT_EQ(sink.drained, 0);
  script.sink->sendable(0);
  EXPECT_EQ(sink.drained, 0) << "half of the mark is not reached";
  script.sink->sendable(0);
  EXPECT_EQ(sink.drained, 1);
  send("c");
  tick();
  EXPECT_EQ(sink.drained, 1) << "told once a crossing";
}

// An application that has seen the backlog above the mark waits for on_drained(), even if one send takes everything.
TEST_F(FramedConnectionTest, TellsOfABacklogThatTheSameTickSends) {
  connection->set_high_watermark(10);
  send("longer than ten");
  ASSERT_GT(connection->backlog(), 10U);
  EXPECT_EQ(sink.drained, 0);
  tick();
  EXPECT_EQ(sink.drained, 1);
}

TEST_F(FramedConnectionTest, CloseSendsWhatIsCommitted) {
  script.take = {4};
  send("last words");
  connection->close();
  EXPECT_FALSE(script.finished);
  EXPECT_FALSE(send("too late"));
  script.sink->sendable(0);
  EXPECT_EQ(script.sent, framed("last words"));
  EXPECT_TRUE(script.finished);
  script.deliver(framed("still received"));
  ASSERT_EQ(sink.messages.size(), 1U);
  script.sink->ended(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "closed"));
  ASSERT_EQ(sink.closed.size(), 1U);
  EXPECT_EQ(sink.closed[0].text, "closed");
}

TEST_F(FramedConnectionTest, TheEndReleasesPayloadsAndIsToldOnce) {
  const std::string payload = patterned(1000);
  CountingOwner owner;
  script.take = {0};
  send("a", std::array{piece_of(payload)}, &owner);
  tick();
  const Error reason = Error::of_connection(Initiator::peer, ErrorCode::unavailable, "reset");
  script.sink->ended(reason);
  EXPECT_EQ(owner.notified, 1);
  script.sink->ended(reason);
  connection->close();
  connection->flush();
  EXPECT_EQ(sink.closed.size(), 1U);
  EXPECT_FALSE(send("too late"));
  EXPECT_FALSE(script.finished);
  EXPECT_EQ(connection->sent(), 0U);
  EXPECT_EQ(connection->committed(), 1009U);
}

TEST_F(FramedConnectionTest, DestroyingReleasesPayloads) {
  const std::string payload = patterned(1000);
  CountingOwner owner;
  send("a", std::array{piece_of(payload)}, &owner);
  connection.reset();
  EXPECT_EQ(owner.notified, 1);
  tick();
  EXPECT_EQ(script.sent, "");
}

// ---- Receiving ----

// Returns messages with heads and payloads of sizes around all limits, for one stream.
std::vector<RecordingSink::Received> mixed_messages() {
  std::vector<RecordingSink::Received> messages;
  unsigned seed = 0;
  for (const std::size_t head : {0, 1, 24, 5000}) {
    for (const std::size_t payload :
         {std::size_t{0}, std::size_t{1}, std::size_t{700}, FramedConnection::receive_buffer_bytes_min - 1,
          FramedConnection::receive_buffer_bytes_min, std::size_t{70'001},
          FramedConnection::receive_block_bytes * 2 + 3}) {
      ++seed;
      messages.push_back({patterned(head, seed), patterned(payload, seed * 3), false});
    }
  }
  return messages;
}

std::string stream_of(const std::vector<RecordingSink::Received>& messages) {
  std::string stream;
  for (const auto& message : messages) stream += framed(message.head, message.payload);
  return stream;
}

class FramedSplitTest : public FramedConnectionTest, public testing::WithParamInterface<std::size_t> {};

TEST_P(FramedSplitTest, ReceivesWhateverTheSplit) {
  const auto expected = mixed_messages();
  for (const ReceiveBuffer::Kind kind : {ReceiveBuffer::Kind::own, ReceiveBuffer::Kind::given}) {
    sink.receive_buffer = kind;
    sink.messages.clear();
    sink.kept.clear();
    script.deliver(stream_of(expected), GetParam());
    ASSERT_TRUE(sink.messages == expected);
    // The kept buffers are not changed by the messages that followed.
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(sink.kept[2 * i].text() == expected[i].head);
      EXPECT_TRUE(sink.kept[2 * i + 1].empty() || sink.kept[2 * i + 1].text() == expected[i].payload);
    }
  }
  EXPECT_GT(sink.in_given, 0);
}
INSTANTIATE_TEST_SUITE_P(Steps, FramedSplitTest,
                         testing::Values(1, 7, 8, 9, 1000, 4096, 32768, 65536, 100'000, SIZE_MAX));

TEST_F(FramedConnectionTest, ReceivesRandomSplitsAndPauses) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    std::mt19937_64 random(seed);
    auto expected = mixed_messages();
    std::shuffle(expected.begin(), expected.end(), random);
    sink.messages.clear();
    sink.kept.clear();
    sink.pause_after = 1 + random() % 4;
    std::string stream = stream_of(expected);
    while (!stream.empty()) {
      const std::size_t step = 1 + random() % (std::size_t{1} << (random() % 18 + 1));
      std::string rest = script.deliver(stream.substr(0, step));
      stream = rest + stream.substr(std::min(step, stream.size()));
      if (script.paused) {
        const std::size_t before = sink.messages.size();
        tick();
        ASSERT_EQ(sink.messages.size(), before) << "seed " << seed;
        ASSERT_TRUE(connection->paused());
        connection->resume();
      }
    }
    while (connection->paused()) connection->resume();
    ASSERT_TRUE(sink.messages == expected) << "seed " << seed;
  }
}

TEST_F(FramedConnectionTest, PausedMessagesWaitAndResumeDeliversThemInOrder) {
  sink.pause_after = 1;
  script.deliver(framed("1") + framed("2") + framed("3"));
  ASSERT_EQ(sink.messages.size(), 1U);
  EXPECT_TRUE(script.paused);
  connection->resume();
  ASSERT_EQ(sink.messages.size(), 2U);
  EXPECT_TRUE(script.paused);
  connection->resume();
  ASSERT_EQ(sink.messages.size(), 3U);
  connection->resume();
  EXPECT_FALSE(script.paused);
  EXPECT_EQ(sink.messages[2].head, "3");
}

TEST_F(FramedConnectionTest, PlacesLargePayloadsOnly) {
  script.deliver(framed("small", patterned(FramedConnection::receive_buffer_bytes_min - 1)), 1000);
  EXPECT_TRUE(sink.selected.empty());
  script.deliver(framed("large", patterned(FramedConnection::receive_buffer_bytes_min)), 1000);
  EXPECT_EQ(sink.selected, std::vector<std::string>{"large"});
  EXPECT_FALSE(sink.kept[3].empty()) << "a payload of the transport's can be kept";
}

TEST_F(FramedConnectionTest, AGivenPlaceIsReceivedIntoDirectly) {
  sink.receive_buffer = ReceiveBuffer::Kind::given;
  const std::string payload = patterned(100'000);
  const std::string stream = framed("h", payload);
  script.deliver(stream.substr(0, 9));
  const MutableBytes space = script.sink->receive_space();
  EXPECT_EQ(space.data(), sink.given.data());
  EXPECT_EQ(space.size(), payload.size()) << "no byte of the next message may land here";
  script.deliver(stream.substr(9) + framed("next"));
  EXPECT_EQ(sink.in_given, 1);
  ASSERT_EQ(sink.messages.size(), 2U);
  EXPECT_TRUE(sink.messages[0].payload == payload);
  EXPECT_NE(sink.kept[1].data(), sink.given.data()) << "what lasts of the caller's memory is a copy";
}

TEST_F(FramedConnectionTest, DiscardedPayloadsGoNowhere) {
  sink.receive_buffer = ReceiveBuffer::Kind::discard;
  script.deliver(framed("h", patterned(300'000)) + framed("next"), 5000);
  ASSERT_EQ(sink.messages.size(), 2U);
  EXPECT_EQ(sink.messages[0], (RecordingSink::Received{"h", "", true}));
  EXPECT_EQ(sink.messages[1], (RecordingSink::Received{"next", "", false}));
}

TEST_F(FramedConnectionTest, UnplacedMemoryIsNotTouchedAnyMore) {
  sink.receive_buffer = ReceiveBuffer::Kind::given;
  const std::string stream = framed("h", patterned(100'000));
  script.deliver(stream.substr(0, 50'000));
  ASSERT_EQ(script.sink->receive_space().size(), 100'009U - 50'000U);
  connection->revoke_receive_buffer(sink.given.data() + 1);  // No receive buffer begins there.
  connection->revoke_receive_buffer(sink.given.data());
  sink.given = {};
  script.deliver(stream.substr(50'000) + framed("next"));
  ASSERT_EQ(sink.messages.size(), 2U);
  EXPECT_EQ(sink.messages[0], (RecordingSink::Received{"h", "", true}));
  EXPECT_EQ(sink.messages[1].head, "next");
}

TEST_F(FramedConnectionTest, AnEndWithinAPayloadIsAnEnd) {
  sink.receive_buffer = ReceiveBuffer::Kind::given;
  script.deliver(framed("h", patterned(100'000)).substr(0, 50'000));
  script.sink->ended(Error::of_connection(Initiator::peer, ErrorCode::unavailable, "closed"));
  EXPECT_EQ(sink.closed.size(), 1U);
  EXPECT_TRUE(sink.messages.empty());
}

struct SmallFramedTest : FramedConnectionTest {
  SmallFramedTest() : FramedConnectionTest({.message_limit = wire::MessageLimit(1000)}) {}
};

TEST_F(SmallFramedTest, TheLongestMessagePasses) {
  const std::string message = framed(std::string(500, 'h'), std::string(492, 'p'));
  ASSERT_EQ(message.size(), 1000U);
  EXPECT_EQ(connection->capabilities().message_bytes_max, 992U);
  script.deliver(message, 10);
  EXPECT_EQ(sink.messages.size(), 1U);
}

TEST_F(SmallFramedTest, ALongerMessageEndsTheConnection) {
  const std::string first = framed("fine");
  const std::string message = framed(std::string(500, 'h'), std::string(493, 'p'));
  const std::string rest = script.deliver(first + message + framed("never seen"), 20);
  EXPECT_EQ(sink.messages.size(), 1U);
  ASSERT_EQ(sink.closed.size(), 1U);
  EXPECT_EQ(sink.closed[0].code, ErrorCode::protocol_error);
  EXPECT_EQ(sink.closed[0].scope, ErrorScope::connection);
  EXPECT_EQ(sink.closed[0].initiator, Initiator::peer);
  EXPECT_TRUE(script.paused);
  EXPECT_FALSE(rest.empty()) << "refused by its prefix, not when it is all there";
}

TEST_F(SmallFramedTest, LengthsThatWouldOverflowAreRefused) {
  std::string message(8, '\xff');
  script.deliver(message);
  ASSERT_EQ(sink.closed.size(), 1U);
  EXPECT_EQ(sink.closed[0].code, ErrorCode::protocol_error);
}

}  // namespace
}  // namespace hawser::transport
