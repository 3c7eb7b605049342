#include "security/tls/output.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace hawser::security::tls {
namespace {

// A stream below that accepts at most `room` bytes.
class NarrowStream final : public transport::Stream {
 public:
  void start(Loop&, transport::StreamSink&) override {}
  void set_sink(transport::StreamSink&) noexcept override {}
  std::size_t send(std::span<const ConstBuffer> pieces) override {
    ++calls;
    std::size_t taken = 0;
    for (const ConstBuffer& piece : pieces) {
      const std::size_t part = std::min(piece.size, room);
      sent += as_text(Bytes(piece.data, part));
      room -= part;
      taken += part;
    }
    return taken;
  }
  void pause() noexcept override {}
  void resume() override {}
  void finish() noexcept override {}
  std::string_view transport() const noexcept override { return "narrow"; }
  std::string peer() const override { return {}; }
  std::string local() const override { return {}; }

  std::size_t room = 1000;
  int calls = 0;
  std::string sent;
};

TEST(TlsOutput, SendsWhatWaitsBeforeWhatFollows) {
  NarrowStream below;
  TlsOutput output;
  ByteQueue session;
  session.append(as_bytes("record one,"));
  below.room = 4;
  EXPECT_FALSE(output.send(below, session));
  EXPECT_TRUE(output.below_blocked());
  EXPECT_TRUE(session.empty()) << "all of it belongs to the output now";
  EXPECT_EQ(output.size(), 7U);
  session.append(as_bytes("record two"));
  EXPECT_FALSE(output.send(below, session)) << "the stream below has no room";
  EXPECT_EQ(below.calls, 1) << "and is not asked";

  below.room = 1000;
  output.on_sendable(0);
  EXPECT_TRUE(output.send(below, session));
  EXPECT_EQ(below.sent, "record one,record two");
  EXPECT_TRUE(output.empty() && session.empty());
  EXPECT_EQ(output.capacity(), 0U);
}

// The stream below may keep a part and report later that it has sent it.
TEST(TlsOutput, BytesThatWereAcceptedLaterAreNotSentAgain) {
  NarrowStream below;
  TlsOutput output;
  ByteQueue session;
  session.append(as_bytes("0123456789"));
  below.room = 2;
  EXPECT_FALSE(output.send(below, session));
  output.on_sendable(5);
  EXPECT_EQ(output.size(), 3U);
  below.room = 1000;
  EXPECT_TRUE(output.send(below, session));
  EXPECT_EQ(below.sent, "01789");
}

TEST(TlsOutput, TheSinkIsNotifiedOnce) {
  TlsOutput output;
  EXPECT_FALSE(output.take_sink_blocked());
  output.on_passed(false);
  EXPECT_TRUE(output.below_blocked());
  output.on_sendable(0);
  EXPECT_FALSE(output.below_blocked());
  EXPECT_TRUE(output.take_sink_blocked());
  EXPECT_FALSE(output.take_sink_blocked());
}

}  // namespace
}  // namespace hawser::security::tls
