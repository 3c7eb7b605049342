#include "pipe/buffered_stream.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "exec/sim_poller.h"
#include "pipe/test/scripted_stream.h"

namespace hawser::pipe {
namespace {

struct LoanOwner final : SendCompletion {
  void on_send_complete() noexcept override {
    ++notified;
    if (then) then();
  }
  int notified = 0;
  std::function<void()> then;
};

struct TrackedStream final : ScriptedStream {
  TrackedStream(StreamScript& script, bool& ended) noexcept : ScriptedStream(script), destroyed(ended) {}
  ~TrackedStream() override { destroyed = true; }
  bool& destroyed;
};

struct BufferedStreamTest : testing::Test {
  void queue(std::string_view text) {
    const ConstBuffer piece{as_bytes(text).data(), text.size()};
    stream.queue().borrow({&piece, 1}, nullptr);
  }
  void loan(std::string_view text, LoanOwner& owner) {
    const ConstBuffer piece{as_bytes(text).data(), text.size()};
    stream.queue().borrow({&piece, 1}, &owner);
  }

  bool destroyed = false;
  StreamScript script;
  Loop loop{std::make_unique<exec::SimPoller>(), {}};  // Destroys a closed stream at last.
  BufferedStream stream{std::make_unique<TrackedStream>(script, destroyed)};
};

TEST_F(BufferedStreamTest, SendsWhatIsQueuedAtOnce) {
  queue("abc");
  queue("def");
  stream.send();
  EXPECT_EQ(script.sent, "abcdef");
  EXPECT_EQ(script.sends, 1);
  EXPECT_EQ(stream.sent(), 6U);
  EXPECT_EQ(stream.backlog(), 0U);
  stream.send();
  EXPECT_EQ(script.sends, 1) << "nothing was queued";
}

TEST_F(BufferedStreamTest, WaitsWhileTheStreamAcceptsNoMore) {
  script.take = {2, 1};
  queue("abcdef");
  stream.send();
  EXPECT_TRUE(stream.blocked());
  stream.send();
  EXPECT_EQ(script.sent, "ab") << "nothing else is sent before sendable()";
  stream.sendable(1);
  EXPECT_FALSE(stream.blocked());
  EXPECT_EQ(stream.sent(), 3U) << "the stream has accepted one byte more by itself";
  EXPECT_EQ(stream.backlog(), 3U);
  stream.send();
  EXPECT_TRUE(stream.blocked());
  stream.sendable(0);
  stream.send();
  EXPECT_EQ(script.sent, "abdef");
  EXPECT_EQ(stream.sent(), 6U);
}

TEST_F(BufferedStreamTest, ANotifiedOwnerMayQueueMore) {
  LoanOwner owner;
  owner.then = [&] {
    queue("next");
    EXPECT_TRUE(stream.sending());
    stream.send();
  };
  loan("loan", owner);
  stream.send();
  EXPECT_EQ(owner.notified, 1);
  EXPECT_EQ(script.sent, "loannext");
}

TEST_F(BufferedStreamTest, AProducerIsAskedBeforeEachPart) {
  int parts = 0;
  stream.send_produced([&] {
    if (++parts <= 3) queue(std::to_string(parts));
  });
  EXPECT_EQ(script.sent, "123");
  EXPECT_EQ(parts, 4) << "it is asked until it has no more";
  script.take = {0};
  queue("4");
  stream.send();
  stream.send_produced([&] { ++parts; });
  EXPECT_EQ(parts, 4) << "nothing can be sent";
}

TEST_F(BufferedStreamTest, AProducerMayCloseTheStream) {
  stream.send_produced([&] {
    queue("late");
    stream.close(loop);
  });
  EXPECT_EQ(script.sends, 0);
  EXPECT_FALSE(stream.sending());
}

TEST_F(BufferedStreamTest, IsEarlyFromAnAmountOn) {
  queue(std::string(BufferedStream::early_flush_bytes - 1, 'x'));
  EXPECT_FALSE(stream.early());
  queue("x");
  EXPECT_TRUE(stream.early());
}

TEST_F(BufferedStreamTest, TheLoopDestroysAClosedStream) {
  script.sink = nullptr;
  queue("kept");
  stream.close(loop);
  EXPECT_TRUE(stream.closed());
  EXPECT_EQ(stream.get(), nullptr);
  EXPECT_TRUE(script.paused);
  EXPECT_NE(script.sink, nullptr) << "the stream still exists, with a sink that ignores everything";
  EXPECT_FALSE(destroyed);
  EXPECT_EQ(stream.backlog(), 4U) << "the owner decides about the queue";
  stream.send();
  EXPECT_EQ(script.sends, 0);
  loop.run_posted();
  EXPECT_TRUE(destroyed);
  stream.close(loop);
}

TEST_F(BufferedStreamTest, ClosedNowItReleasesLoansBehindTheStream) {
  LoanOwner owner;
  owner.then = [&] { EXPECT_TRUE(destroyed) << "the stream read the memory until then"; };
  loan("loan", owner);
  stream.close_now();
  EXPECT_EQ(owner.notified, 1);
  EXPECT_TRUE(stream.closed());
}

}  // namespace
}  // namespace hawser::pipe
