// A signed or sealed connection above one that the test plays.
#include "transport/common/sealed_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/detail/receive_account.h"
#include "security/tls/path_keys.h"
#include "tests/raw_peer.h"
#include "transport/common/test/played_connection.h"

namespace hawser::transport {
namespace {

using testing_tools::octets;
using testing_tools::Octets;

struct CountingOwner final : SendCompletion {
  void on_send_complete() noexcept override { ++notified; }
  int notified = 0;
};

struct RefusingGuard final : ReceiveGuard {
  bool enter() noexcept override { return false; }
  void leave() noexcept override {}
};

// One end, whose proofs have been exchanged.
struct SealedEnd {
  SealedEnd(bool encrypts, security::tls::Side side) {
    auto played = std::make_unique<PlayedConnection>();
    below = played.get();
    const security::tls::Secret exported;
    const PathTerms terms{.transport = "played", .offer = {}, .selection = {}, .answer = {}};
    connection = std::make_unique<SealedConnection>(
        std::move(played), security::tls::make_path_cipher(security::tls::PathAlgorithm::aes_256_gcm, encrypts,
                                                           exported, security::tls::hash_of(terms), side, refused));
    connection->start(sink);
    send("proof");
    below->sent_messages.clear();
    const Octets proof = octets("proof");
    below->above->on_message({.head = proof});
    sink.heads.clear();
    sink.payloads.clear();
    sink.discarded.clear();
    sink.cut.clear();
  }
  void send(std::string_view head, std::string_view payload = {}, SendCompletion* owner = nullptr) {
    std::byte* const to = connection->reserve(head.size());
    std::memcpy(to, head.data(), head.size());
    const ConstBuffer piece{as_bytes(payload).data(), payload.size()};
    connection->commit(head.size(), std::span(&piece, payload.empty() ? 0U : 1U), owner);
  }
  PlayedConnection* below = nullptr;
  std::shared_ptr<std::atomic<std::uint64_t>> refused = std::make_shared<std::atomic<std::uint64_t>>(0);
  PlayedSink sink;
  std::unique_ptr<SealedConnection> connection;  // Ends before its sink.
};

class SealedMessages : public ::testing::TestWithParam<bool> {
 protected:
  // Passes a message on to the server's end, and returns it.
  PlayedConnection::Sent pass(std::string_view head, std::string_view payload = {}) {
    client.send(head, payload);
    PlayedConnection::Sent one = std::move(client.below->sent_messages.back());
    server.below->above->on_message({.head = one.head, .payload = one.payload});
    return one;
  }
  SealedEnd client{GetParam(), security::tls::Side::client};
  SealedEnd server{GetParam(), security::tls::Side::server};
};
INSTANTIATE_TEST_SUITE_P(Levels, SealedMessages, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "sealed" : "signed"; });

TEST_P(SealedMessages, ArriveAsTheyWereSent) {
  const std::string long_head(10'000, 'h');
  const std::string long_payload(100'000, 'p');
  pass("");
  pass("head");
  pass(long_head, "payload");
  pass("head", long_payload);
  EXPECT_EQ(server.sink.heads, (std::vector<std::string>{"", "head", long_head, "head"}));
  EXPECT_EQ(server.sink.payloads, (std::vector<std::string>{"", "", "payload", long_payload}));
  EXPECT_EQ(server.sink.closed, "");
  EXPECT_FALSE(client.connection->capabilities().remote_memory);
  EXPECT_EQ(client.connection->capabilities().message_bytes_max, (1U << 20) - SealedConnection::overhead_bytes);
  // Pages show the network below.
  const Connection* const shown = client.connection.get();
  EXPECT_EQ(link_details_of(shown), "credits 7");
  EXPECT_EQ(link_facts_of(shown)->retransmissions, 3U);
}

// Encrypted payloads are written to memory of the transport, if it has some.
TEST_P(SealedMessages, AreEncryptedToMemoryOfTheTransport) {
  const std::string payload(100'000, 'p');
  CountingOwner owner;
  client.below->holds = true;
  for (const bool has_place : {true, false}) {
    client.below->has_place = has_place;
    client.send("head", payload, &owner);
    const PlayedConnection::Sent& sent = client.below->sent_messages.back();
    EXPECT_EQ(sent.in_place, GetParam() && has_place);
    EXPECT_EQ(owner.notified, GetParam() && has_place ? 1 : 0) << "nobody needs the payload any more";
    EXPECT_EQ(sent.payload == octets(payload), !GetParam());
    server.below->above->on_message({.head = sent.head, .payload = sent.payload});
    EXPECT_EQ(server.sink.payloads.back(), payload);
    owner.notified = 0;
  }
  for (SendCompletion* const held : client.below->held) held->on_send_complete();
  EXPECT_EQ(owner.notified, GetParam() ? 1 : 2);
}

// Neither a message without its payload nor one of another direction is accepted.
TEST_P(SealedMessages, AreRefusedWithoutTheirPayload) {
  client.send("head", "payload");
  server.below->above->on_message({.head = client.below->sent_messages.back().head});
  EXPECT_NE(server.sink.closed.find("its length is not the stated one"), std::string::npos) << server.sink.closed;
  EXPECT_TRUE(server.sink.heads.empty());
  EXPECT_TRUE(server.below->aborted);
  EXPECT_EQ(server.refused->load(), 1U);
}

TEST_P(SealedMessages, OfAnyOtherLengthAreRefused) {
  client.send("head", "payload");
  const PlayedConnection::Sent one = client.below->sent_messages.back();
  for (std::size_t bytes = 0; bytes < one.head.size(); ++bytes) {
    SealedEnd fresh(GetParam(), security::tls::Side::server);
    const Octets cut(one.head.begin(), one.head.begin() + static_cast<std::ptrdiff_t>(bytes));
    fresh.below->above->on_message({.head = cut, .payload = one.payload});
    EXPECT_NE(fresh.sink.closed, "") << bytes;
    SealedEnd asked(GetParam(), security::tls::Side::server);
    EXPECT_EQ(asked.below->above->select_receive_buffer(cut, one.payload.size()).kind, ReceiveBuffer::Kind::discard);
    EXPECT_NE(asked.sink.closed, "") << bytes;
  }
}

// Every bit counts.
TEST_P(SealedMessages, WithAnyChangedBitAreRefused) {
  client.send("head", "payload");
  const PlayedConnection::Sent one = client.below->sent_messages.back();
  for (std::size_t bit = 0; bit < 8 * (one.head.size() + one.payload.size()); ++bit) {
    PlayedConnection::Sent changed = one;
    std::byte& byte = bit / 8 < one.head.size() ? changed.head[bit / 8] : changed.payload[bit / 8 - one.head.size()];
    byte ^= std::byte{1} << static_cast<int>(bit % 8);
    SealedEnd fresh(GetParam(), security::tls::Side::server);
    fresh.below->above->on_message({.head = changed.head, .payload = changed.payload});
    EXPECT_NE(fresh.sink.closed, "") << bit;
    EXPECT_TRUE(fresh.sink.heads.empty()) << bit;
  }
}

TEST_P(SealedMessages, AreNotTakenTwiceOrLate) {
  const PlayedConnection::Sent first = pass("first");
  pass("second");
  server.below->above->on_message({.head = first.head});
  EXPECT_NE(server.sink.closed.find("it is a repeated one"), std::string::npos) << server.sink.closed;
  client.send("third");
  client.send("fourth");
  SealedEnd fresh(GetParam(), security::tls::Side::server);
  fresh.below->above->on_message({.head = client.below->sent_messages.back().head});
  EXPECT_NE(fresh.sink.closed.find("the one before it is missing"), std::string::npos) << fresh.sink.closed;
  EXPECT_EQ(server.sink.heads.size(), 2U);
}

// Memory that was withdrawn between the arrival and the verification is not accessed.
TEST_P(SealedMessages, LeaveWithdrawnMemoryAlone) {
  client.send("head", "payload");
  const PlayedConnection::Sent& one = client.below->sent_messages.back();
  Octets memory = octets("1234567");
  RefusingGuard guard;
  server.sink.selected = {ReceiveBuffer::Kind::given, memory, &guard};
  ASSERT_EQ(server.below->above->select_receive_buffer(one.head, 7).kind, ReceiveBuffer::Kind::given);
  EXPECT_EQ(server.sink.asked, std::vector<std::string>{"head"});
  server.below->above->on_message({.head = one.head, .payload = memory});
  EXPECT_EQ(server.sink.closed, "");
  ASSERT_EQ(server.sink.discarded, std::vector<bool>{true});
  EXPECT_EQ(as_text(memory), "1234567");
}

// Several payloads may be asked for before the first of them is complete, and memory may be revoked.
TEST_P(SealedMessages, ArriveInTheMemoryThatWasGiven) {
  std::vector<Octets> memory(3, Octets(7));
  std::vector<PlayedConnection::Sent> messages;
  for (std::size_t i = 0; i < 3; ++i) {
    client.send("head " + std::to_string(i), "payload");
    messages.push_back(client.below->sent_messages.back());
    server.sink.selected = {ReceiveBuffer::Kind::given, memory[i]};
    ASSERT_EQ(server.below->above->select_receive_buffer(messages[i].head, 7).kind, ReceiveBuffer::Kind::given);
    std::copy(messages[i].payload.begin(), messages[i].payload.end(), memory[i].begin());
  }
  server.connection->revoke_receive_buffer(memory[1].data());
  server.below->above->on_message({.head = messages[0].head, .payload = memory[0]});
  server.below->above->on_message({.head = messages[1].head, .discarded = true});
  server.below->above->on_message({.head = messages[2].head, .payload = memory[2]});
  EXPECT_EQ(server.sink.closed, "");
  EXPECT_EQ(server.sink.heads, (std::vector<std::string>{"head 0", "head 1", "head 2"}));
  EXPECT_EQ(server.sink.payloads, (std::vector<std::string>{"payload", "", "payload"}));
  EXPECT_EQ(as_text(memory[0]), "payload");
  EXPECT_EQ(as_text(memory[2]), "payload");
}

// Only the beginning of a long head is here when memory is short.
TEST_P(SealedMessages, MayBeCut) {
  const std::string long_head(10'000, 'h');
  client.send(long_head, "payload");
  const Octets& all = client.below->sent_messages.back().head;
  server.below->above->on_message({.head = Bytes(all).first(4096), .discarded = true, .cut = true});
  EXPECT_EQ(server.sink.closed, "");
  ASSERT_EQ(server.sink.cut, std::vector<bool>{true});
  EXPECT_EQ(server.sink.heads.at(0), long_head.substr(0, 4048));
  pass("next");
  EXPECT_EQ(server.sink.heads.back(), "next");
}

// Decrypted copies count.
TEST_P(SealedMessages, AreDiscardedWhereMemoryIsShort) {
  detail::ReceiveBudget budget(50'000, 50'000);
  detail::ReceiveAccount account(&budget);
  server.sink.account = &account;
  const std::string large(100'000, 'x');
  pass("head", large);
  pass(large, "payload");
  pass("head", "payload");
  EXPECT_EQ(server.sink.closed, "");
  const bool copies = GetParam();
  EXPECT_EQ(server.sink.discarded, (std::vector<bool>{copies, copies, false}));
  EXPECT_EQ(server.sink.cut, (std::vector<bool>{false, copies, false}));
  EXPECT_EQ(account.used(), 0U);
}

TEST_P(SealedMessages, ReleaseThePayloadsOfTheirOwners) {
  CountingOwner owner;
  CountingOwner released;
  client.below->holds = true;
  const std::string large(100'000, 'x');
  client.send("head", large, &owner);
  client.send("head", large, &released);
  EXPECT_EQ(owner.notified, 0);
  client.connection->copy_and_release(released);
  for (SendCompletion* one : std::exchange(client.below->held, {})) one->on_send_complete();
  EXPECT_EQ(owner.notified, 1);
  if (GetParam()) {
    EXPECT_EQ(released.notified, 0);  // A signed payload is on loan from its owner itself.
  }
}

// The connection may end before the transport below has returned all loans.
TEST(SealedConnectionEnd, LoansMayOutliveIt) {
  std::vector<SendCompletion*> held;
  CountingOwner owner;
  {
    SealedEnd client(true, security::tls::Side::client);
    client.below->holds = true;
    client.send("head", std::string(100'000, 'x'), &owner);
    held = client.below->held;
  }
  for (SendCompletion* one : held) one->on_send_complete();
  EXPECT_EQ(owner.notified, 1);
}

}  // namespace
}  // namespace hawser::transport
