#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "hawser/detail/log_linear.h"
#include "hawser/time.h"

namespace hawser::rpc {

// Percentiles of the latencies of the last one to two periods, at most an eighth too long. Does not read a clock.
// 2.6 KiB.
class LatencyWindow {
 public:
  static constexpr Duration period = std::chrono::seconds(10);
  static constexpr std::uint32_t samples_min = 100;

  void observe(Duration latency, Time now) noexcept {
    rotate(now);
    ++present_.counts[Buckets::index_of(static_cast<std::uint64_t>(std::max<Duration::rep>(latency.count(), 0)))];
    ++present_.count;
  }

  // Empty with fewer than samples_min latencies. The value is computed once for 64 latencies.
  std::optional<Duration> quantile(double part, Time now) noexcept {
    rotate(now);
    const std::uint32_t count = present_.count + before_.count;
    if (count < samples_min) return std::nullopt;
    if (count - computed_at_ >= 64) {  // Unsigned: also if the count has fallen.
      computed_at_ = count;
      std::array<std::uint32_t, Buckets::buckets> sums = present_.counts;
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += before_.counts[i];
      computed_ = Duration(static_cast<Duration::rep>(Buckets::last_of(Buckets::bucket_of(sums, count, part))));
    }
    return computed_;
  }

 private:
  using Buckets = detail::LogLinear<3, 42>;
  struct Counts {
    std::array<std::uint32_t, Buckets::buckets> counts{};
    std::uint32_t count = 0;
  };

  void rotate(Time now) noexcept {
    if (now - began_ < period) return;
    before_ = now - began_ < 2 * period ? present_ : Counts();
    present_ = Counts();
    began_ = now;
    computed_at_ = 0 - std::uint32_t{64};
  }

  Counts present_;
  Counts before_;
  Time began_{};
  std::uint32_t computed_at_ = 0 - std::uint32_t{64};  // Number of latencies that computed_ includes.
  Duration computed_{};
};

}  // namespace hawser::rpc
