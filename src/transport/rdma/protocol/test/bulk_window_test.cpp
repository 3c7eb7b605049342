#include "transport/rdma/protocol/bulk_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "transport/rdma/protocol/test/manual_clock_testing.h"

namespace hawser::transport::rdma {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

nanoseconds time_of(double of_seconds) { return nanoseconds(static_cast<std::int64_t>(of_seconds * 1e9)); }

// A path with a rate and a latency: a window of `bytes` is transferred in the time of the bytes or of the latency,
// whichever is longer.
class BulkWindows : public ::testing::Test {
 protected:
  void transfer(Duration time, bool messages) {
    for (const Time until = clock_.now() + time; clock_.now() < until;) {
      if (messages) window_.on_messages(++messages_);
      const std::size_t bytes = window_.bytes();
      clock_.pass(time_of(std::max(static_cast<double>(bytes) / rate_, latency_)));
      for (std::size_t left = bytes; left != 0;) {
        const std::size_t part = std::min(left, window_.part_bytes());
        window_.on_confirmed(part, true);
        left -= part;
      }
    }
  }
  // The part of the path's rate that the window gives.
  double share() const { return std::min(1.0, static_cast<double>(window_.bytes()) / (rate_ * latency_)); }

  ManualClock clock_;
  BulkWindow window_{&clock_};
  std::uint64_t messages_ = 0;
  double rate_ = 12.5e9;
  double latency_ = 5e-6;
};

TEST_F(BulkWindows, AreLargeWhileThereAreNoMessages) {
  transfer(seconds(1), false);
  EXPECT_EQ(window_.bytes(), BulkWindow::quiet_bytes);
  window_.on_messages(++messages_);
  EXPECT_EQ(window_.bytes(), BulkWindow::bytes_max) << "the first message had no effect";
  transfer(seconds(1), false);
  EXPECT_EQ(window_.bytes(), BulkWindow::quiet_bytes) << "it stayed small without messages";
}

TEST_F(BulkWindows, AreAsSmallAsTheRateAllows) {
  struct Path {
    double rate;
    double latency;
    std::size_t bytes;
  };
  // The least window of powers of two with 0.85 of the rate.
  for (const Path path : {Path{12.5e9, 5e-6, 64 << 10}, Path{50e9, 5e-6, 256 << 10}, Path{12.5e9, 1e-6, 16 << 10},
                          Path{150e6, 50e-6, 8 << 10}, Path{1e9, 30e-6, 32 << 10}}) {
    rate_ = path.rate;
    latency_ = path.latency;
    window_ = BulkWindow(&clock_);
    transfer(seconds(2), true);
    std::size_t largest = 0;
    for (int i = 0; i < 100; ++i) {
      transfer(milliseconds(20), true);
      largest = std::max(largest, window_.bytes());
    }
    EXPECT_EQ(largest, path.bytes) << path.rate << " bytes a second, " << path.latency << " s";
    EXPECT_GE(share(), BulkWindow::rate_kept / 2) << "a trial has half of the window";
  }
}

TEST_F(BulkWindows, FollowAPathThatChanges) {
  transfer(seconds(2), true);
  EXPECT_EQ(window_.bytes(), std::size_t{64} << 10);
  latency_ = 20e-6;  // 64 KiB are a quarter of what the path needs now.
  transfer(seconds(3), true);
  EXPECT_GE(window_.bytes(), std::size_t{128} << 10);
  EXPECT_EQ(window_.bytes(), BulkWindow::bytes_max);
  latency_ = 5e-6;
  transfer(seconds(3), true);
  EXPECT_LE(window_.bytes(), std::size_t{64} << 10);
  // Another user of the path takes nine tenths: a smaller window has the rate that is left.
  rate_ = 1.25e9;
  transfer(seconds(3), true);
  EXPECT_LE(window_.bytes(), std::size_t{16} << 10);
}

// While nothing waits for the window, the application determines the rate. It says nothing about the path.
TEST_F(BulkWindows, DoNotMeasureWhatTheApplicationLeavesUnused) {
  transfer(seconds(2), true);
  const std::size_t before = window_.bytes();
  for (int i = 0; i < 1000; ++i) {
    window_.on_messages(++messages_);
    window_.on_confirmed(window_.part_bytes(), false);
    clock_.pass(milliseconds(10));
  }
  EXPECT_EQ(window_.bytes(), before);
  // Short bursts are measured together, without the pauses.
  latency_ = 1e-6;
  for (int i = 0; i < 100'000; ++i) {
    window_.on_messages(++messages_);
    const std::size_t bytes = window_.bytes();
    window_.on_confirmed(0, true);
    clock_.pass(time_of(std::max(static_cast<double>(bytes) / rate_, latency_)));
    window_.on_confirmed(bytes, false);
    clock_.pass(std::chrono::microseconds(30));
  }
  EXPECT_LE(window_.bytes(), std::size_t{16} << 10);
}

TEST_F(BulkWindows, WithoutAClockAreConstant) {
  BulkWindow window(nullptr);
  EXPECT_EQ(window.bytes(), BulkWindow::quiet_bytes);
  window.on_messages(1);
  for (int i = 0; i < 100'000; ++i) window.on_confirmed(window.part_bytes(), i % 2 == 0);
  EXPECT_EQ(window.bytes(), BulkWindow::bytes_max);
}

}  // namespace
}  // namespace hawser::transport::rdma
