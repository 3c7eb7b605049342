#include "cli/call/latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/decimal_text.h"

namespace hawser::cli {
namespace {

constexpr std::pair<const char*, double> percentiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"p99.99", 0.9999}};

double microseconds(Duration time) noexcept { return static_cast<double>(time.count()) / 1000; }

std::string shown(Duration time) {
  const double us = microseconds(time);
  if (us < 1000) return fmt::format("{:.1f} us", us);
  return us < 1e6 ? fmt::format("{:.2f} ms", us / 1000) : fmt::format("{:.2f} s", us / 1e6);
}

}  // namespace

void Latencies::record(Duration latency) noexcept {
  const auto value = static_cast<std::uint64_t>(std::max<Duration::rep>(latency.count(), 0));
  ++counts_[Buckets::index_of(value)];
  ++count_;
  sum_ += static_cast<double>(value);
  least_ = std::min(least_, value);
  greatest_ = std::max(greatest_, value);
}

Duration Latencies::percentile(double fraction) const noexcept {
  if (count_ == 0) return Duration::zero();
  const std::uint64_t value = Buckets::middle_of(Buckets::bucket_of(counts_, count_, fraction));
  return Duration(static_cast<Duration::rep>(std::clamp(value, least_, greatest_)));
}

std::string Latencies::text() const {
  if (count_ == 0) return "no answers";
  std::string line = fmt::format("{}, min {}", count_text(count_, "answer"), shown(Duration(least_)));
  for (const auto& [name, fraction] : percentiles) line += fmt::format(", {} {}", name, shown(percentile(fraction)));
  return line + fmt::format(", max {}", shown(Duration(greatest_)));
}

std::string Latencies::json() const {
  std::string out = fmt::format("{{\"count\":{}", count_);
  if (count_ != 0) {
    out += fmt::format(",\"min\":{:.3f},\"mean\":{:.3f}", microseconds(Duration(least_)),
                       sum_ / static_cast<double>(count_) / 1000);
    for (const auto& [name, fraction] : percentiles) {
      out += fmt::format(",\"{}\":{:.3f}", name, microseconds(percentile(fraction)));
    }
    out += fmt::format(",\"max\":{:.3f}", microseconds(Duration(greatest_)));
  }
  return out + "}";
}

std::string Latencies::bars() const {
  std::array<std::uint64_t, 64> octaves{};
  for (std::size_t i = 0; i < Buckets::buckets; ++i) {
    if (counts_[i] != 0) octaves[static_cast<std::size_t>(std::bit_width(Buckets::middle_of(i)))] += counts_[i];
  }
  const std::uint64_t most = std::max<std::uint64_t>(*std::ranges::max_element(octaves), 1);
  std::string out;
  bool begun = false;
  for (std::size_t i = 0; i < octaves.size(); ++i) {
    // The empty octaves between others are shown.
    begun = begun || octaves[i] != 0;
    if (!begun || std::all_of(octaves.begin() + static_cast<std::ptrdiff_t>(i), octaves.end(),
                              [](std::uint64_t count) { return count == 0; })) {
      continue;
    }
    constexpr std::uint64_t width = 50;
    const auto length = static_cast<std::size_t>((octaves[i] * width + most - 1) / most);
    out += fmt::format("{}  < {:>10} {:>10} {}", out.empty() ? "" : "\n", shown(Duration(std::uint64_t{1} << i)),
                       octaves[i], std::string(length, '#'));
  }
  return out;
}

}  // namespace hawser::cli
