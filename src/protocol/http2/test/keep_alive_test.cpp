#include "protocol/http2/keep_alive.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "exec/sim_poller.h"

namespace hawser::protocol::http2 {
namespace {

using std::chrono::seconds;

// A connection in virtual time.
class Http2KeepAlive : public testing::Test, protected KeepAlive::Connection {
 protected:
  bool expects_bytes() const noexcept override { return expects; }
  void send_ping() override { ++pings; }
  void on_silent_peer() override { ++ends; }
  void pass(Duration time) {
    loop.run([](Loop& on, Duration of) -> Task<void> { co_await on.sleep(of); }(loop, time));
  }

  Loop loop{std::make_unique<exec::SimPoller>(), {}};
  bool expects = true;
  int pings = 0;
  int ends = 0;
  KeepAlive keep{loop, *this};
};

TEST_F(Http2KeepAlive, EndsAConnectionThatDoesNotAnswerAPing) {
  keep.start(seconds(10));
  pass(seconds(9));
  EXPECT_EQ(pings, 0);
  pass(seconds(2));
  EXPECT_EQ(pings, 1);
  EXPECT_EQ(ends, 0);
  pass(seconds(10));
  EXPECT_EQ(ends, 1);
  pass(seconds(100));
  EXPECT_EQ(pings, 1);
  EXPECT_EQ(ends, 1);
}

TEST_F(Http2KeepAlive, AnyByteIsASignOfLife) {
  keep.start(seconds(10));
  for (int i = 0; i < 5; ++i) {
    pass(seconds(11));
    keep.received(1);
    pass(seconds(9));
  }
  EXPECT_EQ(ends, 0);
}

TEST_F(Http2KeepAlive, APeerThatNeedNotSendIsNotTested) {
  expects = false;
  keep.start(seconds(10));
  pass(seconds(100));
  EXPECT_EQ(pings, 0);
  expects = true;
  pass(seconds(10));
  EXPECT_EQ(pings, 1);
}

TEST_F(Http2KeepAlive, StopsAndStartsAgain) {
  keep.start(seconds(10));
  pass(seconds(11));
  keep.stop();
  pass(seconds(100));
  EXPECT_EQ(ends, 0);
  keep.start(seconds(30));  // The PING before counts no more.
  pass(seconds(31));
  EXPECT_EQ(pings, 2);
  EXPECT_EQ(ends, 0);
  keep.start(forever);
  pass(seconds(1000));
  EXPECT_EQ(ends, 0);
}

}  // namespace
}  // namespace hawser::protocol::http2
