#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "hawser/metrics.h"
#include "hawser/server.h"

namespace hawser::observe {

// Rates of the last minute, hour and day, the oldest first.
struct RateTrend {
  std::vector<double> minute;  // One value a second.
  std::vector<double> hour;    // One value a minute.
  std::vector<double> day;     // One value an hour.
};

// Samples the counters of a server once a second, for the pages. Keeps trends of the first metric_methods_max methods
// by registration, about 1.5 MiB in all. Any thread.
class Trends {
 public:
  // Takes the sample of the second that ends `now`.
  void sample(const Server& server, Time now);

  RateTrend calls() const;
  // Empty for methods without a trend.
  RateTrend calls_of(std::size_t method) const;
  // The duration of calls in the last one to two minutes, from `now`, the present counts of all calls. Everything since
  // the start for methods without a trend.
  HistogramSnapshot recent(std::size_t method, const HistogramSnapshot& now) const;
  // The part of the last second in which a loop worked.
  double utilisation(std::size_t loop) const;

 private:
  struct Series {
    void add(std::uint64_t count, std::uint64_t second) noexcept;
    RateTrend read(std::uint64_t second) const;

    std::uint64_t last = 0;  // The previous count.
    std::array<float, 60> seconds{};
    std::array<float, 60> minutes{};
    std::array<float, 24> hours{};
    double minute_sum = 0;
    double hour_sum = 0;
  };
  // Counts at the begin of the previous window and of this one. A window has a minute.
  struct Window {
    HistogramSnapshot previous;
    HistogramSnapshot present;
  };
  struct Method {
    Series calls;
    std::unique_ptr<Window> window;  // Null until the method has been called.
  };
  struct LoopSample {
    Duration busy{};
    Time at{};
    double utilisation = 0;
  };

  mutable std::mutex lock_;  // Guards all members.
  std::uint64_t second_ = 0;
  Series calls_;
  std::vector<Method> methods_;
  std::vector<LoopSample> loops_;
};

}  // namespace hawser::observe
