#include "negotiate/path_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/sim_poller.h"
#include "hawser/log.h"
#include "transport/common/test/played_connection.h"

// The first messages on a path, in virtual time.
namespace hawser::negotiate {
namespace {

using std::chrono::milliseconds;

// A proof whose values are 32 equal letters: 'o' of this side, 't' of the peer.
class PlayedProof final : public transport::PathProof {
 public:
  explicit PlayedProof(std::vector<std::size_t>& verified) : verified_(verified) {}
  Bytes own() const noexcept override { return as_bytes(own_); }
  bool verify(Bytes theirs) noexcept override {
    verified_.push_back(theirs.size());
    return as_text(theirs) == std::string(bytes, 't');
  }

 private:
  const std::string own_ = std::string(bytes, 'o');
  std::vector<std::size_t>& verified_;
};

class PathGuardTest : public testing::Test {
 protected:
  static constexpr Duration time = milliseconds(10);
  static std::string proof_of(char letter) {
    return std::string("HWPP\x01\0\0\0", 8) + std::string(transport::PathProof::bytes, letter);
  }
  void deliver(std::string_view head, std::string_view payload = {}) {
    guard.on_message({.head = as_bytes(head), .payload = as_bytes(payload)});
  }
  void sleep(Duration duration) {
    loop.run([](Loop& on, Duration until) -> Task<void> { co_await on.sleep(until); }(loop, duration));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {.log = no_log()}};
  transport::PlayedConnection connection;
  transport::PlayedSink session;
  std::vector<std::size_t> verified;  // The lengths of the values that the proof was asked about.
  PathGuard path{loop, connection, session, std::make_unique<PlayedProof>(verified), loop.after(time)};
  transport::MessageSink& guard = path;
};

TEST_F(PathGuardTest, TheProofIsTheFirstMessageInEachDirection) {
  path.start();
  ASSERT_EQ(connection.sent_messages.size(), 1U);
  EXPECT_EQ(as_text(connection.sent_messages[0].head), proof_of('o'));
  EXPECT_TRUE(connection.sent_messages[0].payload.empty());
  EXPECT_FALSE(path.proved());
  deliver(proof_of('t'));
  EXPECT_TRUE(path.proved());
  EXPECT_TRUE(session.heads.empty()) << "the session does not see it";
  deliver("a frame", "and its payload");
  session.selected.kind = transport::ReceiveBuffer::Kind::discard;
  EXPECT_EQ(guard.select_receive_buffer(as_bytes("head"), 5).kind, transport::ReceiveBuffer::Kind::discard);
  EXPECT_EQ(session.heads, std::vector<std::string>{"a frame"});
  EXPECT_EQ(session.payloads, std::vector<std::string>{"and its payload"});
  EXPECT_EQ(session.asked, std::vector<std::string>{"head"});
  sleep(2 * time);
  EXPECT_TRUE(session.closed.empty()) << "the deadline is that of the proof alone";
  EXPECT_EQ(connection.sent_messages.size(), 1U);
}

// The connection has no memory, and ends.
TEST_F(PathGuardTest, AConnectionThatTakesNoMessageSendsNoProof) {
  connection.full = true;
  path.start();
  EXPECT_TRUE(connection.sent_messages.empty());
}

TEST_F(PathGuardTest, AMessageThatArrivesBeforeTheStartHasEndedIsAnsweredOnce) {
  deliver(proof_of('t'));
  ASSERT_EQ(connection.sent_messages.size(), 1U);
  EXPECT_EQ(as_text(connection.sent_messages[0].head), proof_of('o'));
  path.start();
  EXPECT_EQ(connection.sent_messages.size(), 1U);
  EXPECT_TRUE(path.proved() && session.closed.empty());
}

TEST_F(PathGuardTest, EveryOtherFirstMessageEndsTheSession) {
  const std::string right = proof_of('t');
  std::string other_version = right;
  other_version[4] = '\x02';
  for (const auto& [head, payload] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                      {"a frame", ""},
                                                                                      {right.substr(0, 39), ""},
                                                                                      {right + "t", ""},
                                                                                      {right, "p"},
                                                                                      {other_version, ""}}) {
    std::vector<std::size_t> asked;
    transport::PlayedSink above;
    PathGuard one(loop, connection, above, std::make_unique<PlayedProof>(asked), loop.after(time));
    transport::MessageSink& sink = one;
    one.start();
    sink.on_message({.head = as_bytes(head), .payload = as_bytes(payload)});
    EXPECT_EQ(asked, std::vector<std::size_t>{0}) << "it takes the same time as a wrong proof";
    ASSERT_EQ(above.ends, 1U) << head;
    EXPECT_TRUE(above.closed.ends_with("within TLS: its first message is not a proof")) << above.closed;
    EXPECT_TRUE(above.closed.starts_with("the peer at the other end of played did not prove")) << above.closed;
    sink.on_message({.head = as_bytes(right)});
    EXPECT_FALSE(one.proved()) << "a second try";
    EXPECT_TRUE(above.heads.empty());
    EXPECT_EQ(above.ends, 1U);
  }
}

TEST_F(PathGuardTest, AMessageWithoutAllOfItsBytesIsNotAProof) {
  path.start();
  const std::string right = proof_of('t');
  guard.on_message({.head = as_bytes(right), .discarded = true, .cut = true});
  EXPECT_EQ(session.ends, 1U);
  EXPECT_FALSE(path.proved());
}

TEST_F(PathGuardTest, AnotherProofIsNamedAsSuch) {
  path.start();
  deliver(proof_of('x'));
  EXPECT_EQ(verified, std::vector<std::size_t>{transport::PathProof::bytes});
  ASSERT_EQ(session.ends, 1U);
  EXPECT_TRUE(session.closed.ends_with("somebody has changed, replayed or redirected it")) << session.closed;
  EXPECT_EQ(path.refusal(), session.closed);
}

TEST_F(PathGuardTest, APayloadBeforeTheProofIsDiscarded) {
  path.start();
  EXPECT_EQ(guard.select_receive_buffer(as_bytes("head"), 1 << 20).kind, transport::ReceiveBuffer::Kind::discard);
  EXPECT_EQ(session.ends, 1U);
  EXPECT_EQ(verified, std::vector<std::size_t>{0});
  EXPECT_EQ(guard.select_receive_buffer(as_bytes("head"), 1 << 20).kind, transport::ReceiveBuffer::Kind::discard);
  EXPECT_EQ(session.ends, 1U) << "it has ended";
  EXPECT_TRUE(session.asked.empty());
}

TEST_F(PathGuardTest, WithoutAProofThePathEndsAtTheDeadline) {
  path.start();
  sleep(time / 2);
  EXPECT_TRUE(session.closed.empty());
  sleep(time);
  ASSERT_EQ(session.ends, 1U);
  EXPECT_TRUE(session.closed.ends_with("no proof came in time")) << session.closed;
  deliver(proof_of('t'));
  EXPECT_FALSE(path.proved()) << "it comes too late";
}

TEST_F(PathGuardTest, AfterTheEndNothingIsExpected) {
  path.start();
  path.end();
  deliver("a frame");
  sleep(2 * time);
  EXPECT_TRUE(session.closed.empty() && verified.empty());
  guard.on_closed(Error::of_connection(ErrorCode::unavailable, "gone"));
  EXPECT_EQ(session.closed, "gone");
  EXPECT_TRUE(path.refusal().empty());
}

// It has keys.
TEST_F(PathGuardTest, TheProofIsDestroyedWhenItIsNotNeededAnyMore) {
  struct CountedProof final : transport::PathProof {
    explicit CountedProof(int& count) : present(count) { ++present; }
    ~CountedProof() override { --present; }
    Bytes own() const noexcept override { return as_bytes(value); }
    bool verify(Bytes) noexcept override { return true; }
    const std::string value = std::string(bytes, 'o');
    int& present;
  };
  int present = 0;
  PathGuard proved(loop, connection, session, std::make_unique<CountedProof>(present), loop.after(time));
  PathGuard ended(loop, connection, session, std::make_unique<CountedProof>(present), loop.after(time));
  proved.start();
  ended.start();
  EXPECT_EQ(present, 2);
  static_cast<transport::MessageSink&>(proved).on_message({.head = as_bytes(proof_of('t'))});
  EXPECT_EQ(present, 1);
  ended.end();
  EXPECT_EQ(present, 0);
  EXPECT_TRUE(session.closed.empty());
}

TEST_F(PathGuardTest, AnEndBeforeTheStartSendsNothing) {
  guard.on_closed(Error::of_connection(ErrorCode::unavailable, "gone"));
  path.start();
  EXPECT_TRUE(connection.sent_messages.empty());
  sleep(2 * time);
  EXPECT_TRUE(path.refusal().empty());
  EXPECT_EQ(session.ends, 1U);
}

}  // namespace
}  // namespace hawser::negotiate
