#include "cluster/concurrency_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

// A server with workers and a queue in virtual time, whose calls in flight a limit bounds.
namespace hawser::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

struct LimitedRun {
  double refused;  // Part of the calls.
  double per_ms;   // Calls that ended within 50 ms, for each millisecond.
  Duration p99;    // Latency of the calls that were not refused.
};

// The other limits, as far as the comparison needs them.
struct NoLimit {
  unsigned limit() const { return 1'000'000; }
  void observe(Duration, unsigned, Time) {}
};

// Netflix's Gradient2: the reference is a mean of the last 600 periods.
class SlowMeanLimit {
 public:
  unsigned limit() const { return static_cast<unsigned>(limit_); }
  void observe(Duration latency, unsigned in_flight, Time now) {
    sum_ += static_cast<double>(latency.count());
    in_flight_ = std::max(in_flight_, in_flight);
    if (++count_ < 10 || now - began_ < milliseconds(100)) return;
    const double mean = sum_ / count_;
    reference_ = reference_ == 0 ? mean : reference_ + (mean - reference_) * 2 / 601;
    if (reference_ > 2 * mean) reference_ *= 0.95;
    if (in_flight_ >= limit_ / 2) {
      const double aim = limit_ * std::clamp(1.5 * reference_ / mean, 0.5, 1.0) + 4;
      limit_ = std::clamp(limit_ + (aim - limit_) * 0.2, 4.0, 1000.0);
    }
    sum_ = 0;
    count_ = in_flight_ = 0;
    began_ = now;
  }

 private:
  double limit_ = 20;
  double reference_ = 0;
  double sum_ = 0;
  unsigned count_ = 0;
  unsigned in_flight_ = 0;
  Time began_{};
};

template <class Limit>
class LimitedServer {
 public:
  LimitedServer(Limit with, std::size_t workers) : limit(with), workers_(workers, now_) {}

  // Offers calls for a time, and measures the second half of it.
  LimitedRun run(double calls_per_ms, Duration service, Duration duration) {
    const Time measured = now_ + duration / 2;
    const Time until = now_ + duration;
    std::vector<Duration> latencies;
    double calls = 0;
    double refused = 0;
    while (now_ < until) {
      const Time next = now_ + exponential(1e6 / calls_per_ms);
      for (; !ends_.empty() && ends_.top().when <= next; ends_.pop()) {
        const Duration latency = ends_.top().when - ends_.top().began;
        limit.observe(latency, static_cast<unsigned>(ends_.size()), ends_.top().when);
        if (ends_.top().began >= measured) latencies.push_back(latency);
      }
      now_ = next;
      calls += now_ >= measured ? 1 : 0;
      if (ends_.size() >= limit.limit()) {
        refused += now_ >= measured ? 1 : 0;
        continue;
      }
      const auto worker = std::ranges::min_element(workers_);
      *worker = std::max(*worker, now_) + exponential(static_cast<double>(service.count()));
      ends_.push({*worker, now_});
    }
    std::ranges::sort(latencies);
    const auto good = std::ranges::count_if(latencies, [](Duration one) { return one <= milliseconds(50); });
    return {.refused = refused / calls,
            .per_ms = static_cast<double>(good) / std::chrono::duration<double, std::milli>(duration / 2).count(),
            .p99 = latencies.empty() ? Duration::max() : latencies[latencies.size() * 99 / 100]};
  }

  Limit limit;

 private:
  struct End {
    Time when;
    Time began;
    bool operator>(const End& other) const { return when > other.when; }
  };
  Duration exponential(double mean_ns) {
    const double uniform = static_cast<double>((random_.next() >> 11) + 1) * 0x1.0p-53;
    return Duration(static_cast<Duration::rep>(-std::log(uniform) * mean_ns));
  }

  Time now_ = Time(std::chrono::hours(1));
  Random random_{1};
  std::vector<Time> workers_;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
};

constexpr Duration one_ms = milliseconds(1);

// A server of 8 workers and 1 ms of service answers 8 calls in 1 ms.
TEST(ConcurrencyLimit, AServerWithoutALimitAnswersNothingInTimeUnderOverload) {
  LimitedServer<NoLimit> server({}, 8);
  EXPECT_LT(server.run(16, one_ms, seconds(10)).per_ms, 0.1) << "the simulation shows what the limit avoids";
}

TEST(ConcurrencyLimit, KeepsThroughputAndLatencyUnderOverload) {
  LimitedServer<ConcurrencyLimit> server(ConcurrencyLimit({}, 1), 8);
  const LimitedRun half = server.run(4, one_ms, seconds(10));
  EXPECT_EQ(half.refused, 0);
  const LimitedRun nearly_full = server.run(7.2, one_ms, seconds(20));
  EXPECT_LT(nearly_full.refused, 0.01);
  const LimitedRun overload = server.run(16, one_ms, seconds(40));
  EXPECT_GT(overload.per_ms, 7.8);
  EXPECT_LT(overload.p99, milliseconds(10));
  const LimitedRun after = server.run(7.2, one_ms, seconds(20));
  EXPECT_LT(after.refused, 0.01);
}

TEST(ConcurrencyLimit, FollowsAServerThatBecomesSlowerAndFasterAgain) {
  LimitedServer<ConcurrencyLimit> server(ConcurrencyLimit({}, 1), 8);
  server.run(4, one_ms, seconds(10));
  const LimitedRun slow = server.run(4, 4 * one_ms, seconds(40));
  EXPECT_GT(slow.per_ms, 1.9);
  EXPECT_LT(slow.p99, milliseconds(40));
  const LimitedRun fast = server.run(7.2, one_ms, seconds(20));
  EXPECT_LT(fast.refused, 0.01);
}

TEST(ConcurrencyLimit, FindsTheSizeOfALargeServer) {
  LimitedServer<ConcurrencyLimit> server(ConcurrencyLimit({}, 1), 64);
  EXPECT_LT(server.run(57.6, one_ms, seconds(10)).refused, 0.01);
  const LimitedRun overload = server.run(128, one_ms, seconds(10));
  EXPECT_GT(overload.per_ms, 62);
  EXPECT_LT(overload.p99, milliseconds(8));
}

// The reason for the probes: a reference that is a mean rises under overload, and the limit with it.
TEST(ConcurrencyLimit, DoesNotDriftDuringALongOverload) {
  LimitedServer<ConcurrencyLimit> server(ConcurrencyLimit({}, 1), 8);
  const LimitedRun ours = server.run(10, one_ms, minutes(3));
  EXPECT_LT(ours.p99, milliseconds(10));
  EXPECT_GT(ours.per_ms, 7.8);
  EXPECT_LT(server.limit.limit(), 60U);
  LimitedServer<SlowMeanLimit> drifting({}, 8);
  EXPECT_GT(drifting.run(10, one_ms, minutes(3)).p99, 2 * ours.p99);
}

TEST(ConcurrencyLimit, RefusesOptionsThatContradictEachOther) {
  for (const LimitOptions& options : {LimitOptions{.min = 0}, LimitOptions{.initial = 2}, LimitOptions{.max = 10},
                                      LimitOptions{.tolerance = 1}, LimitOptions{.probe_interval = Duration::zero()}}) {
    const Result<void> checked = ConcurrencyLimit::check(options);
    EXPECT_TRUE(!checked && checked.error().text.starts_with("LimitOptions::"));
  }
}

}  // namespace
}  // namespace hawser::cluster
