#include "observe/trends.h"

#include <algorithm>
#include <chrono>

#include "hawser/server_metrics.h"
#include "rpc/server/inspector.h"
#include "rpc/server/loop_report.h"

namespace hawser::observe {

using rpc::Inspector;

void Trends::Series::add(std::uint64_t count, std::uint64_t second) noexcept {
  const auto difference = static_cast<double>(count - last);
  last = count;
  seconds[second % 60] = static_cast<float>(difference);
  minute_sum += difference;
  if (second % 60 != 59) return;
  minutes[second / 60 % 60] = static_cast<float>(minute_sum / 60);
  hour_sum += minute_sum;
  minute_sum = 0;
  if (second / 60 % 60 != 59) return;
  hours[second / 3600 % 24] = static_cast<float>(hour_sum / 3600);
  hour_sum = 0;
}

// `second` is the number of samples so far.
RateTrend Trends::Series::read(std::uint64_t second) const {
  const auto part = [](const auto& ring, std::uint64_t next) {
    std::vector<double> values;
    const std::uint64_t count = std::min<std::uint64_t>(next, ring.size());
    for (std::uint64_t i = next - count; i < next; ++i) values.push_back(static_cast<double>(ring[i % ring.size()]));
    return values;
  };
  return {.minute = part(seconds, second), .hour = part(minutes, second / 60), .day = part(hours, second / 3600)};
}

void Trends::sample(const Server& server, Time now) {
  const std::vector<const rpc::MethodTable*> tables = Inspector::tables(server);
  const std::vector<rpc::LoopReport> loops = Inspector::loops(server);
  const std::uint64_t calls = server.counters().calls;
  const std::size_t methods = std::min(Inspector::methods(server), metric_methods_max);
  const std::lock_guard guard(lock_);
  methods_.resize(methods);
  for (std::size_t i = 0; i < methods; ++i) {
    Method& method = methods_[i];
    const rpc::MethodReport report = Inspector::method(server, tables, i);
    method.calls.add(report.calls, second_);
    if (method.window == nullptr) {
      if (report.calls != 0) method.window = std::make_unique<Window>();
    } else if (i % 60 == second_ % 60) {  // Some each second, so that no sample takes long.
      method.window->previous = method.window->present;
      method.window->present = Inspector::latency(tables, i);
    }
  }
  calls_.add(calls, second_);
  loops_.resize(std::max(loops_.size(), loops.size()));
  for (std::size_t i = 0; i < loops.size(); ++i) {
    LoopSample& loop = loops_[i];
    const Duration busy = loops[i].ticks.busy;
    if (now > loop.at && loop.at != Time{}) {
      loop.utilisation = std::clamp(std::chrono::duration<double>(busy - loop.busy).count() /
                                        std::chrono::duration<double>(now - loop.at).count(),
                                    0.0, 1.0);
    }
    loop.busy = busy;
    loop.at = now;
  }
  ++second_;
}

RateTrend Trends::calls() const {
  const std::lock_guard guard(lock_);
  return calls_.read(second_);
}

RateTrend Trends::calls_of(std::size_t method) const {
  const std::lock_guard guard(lock_);
  return method < methods_.size() ? methods_[method].calls.read(second_) : RateTrend{};
}

HistogramSnapshot Trends::recent(std::size_t method, const HistogramSnapshot& now) const {
  const std::lock_guard guard(lock_);
  if (method >= methods_.size() || methods_[method].window == nullptr) return now;
  const HistogramSnapshot& before = methods_[method].window->previous;
  HistogramSnapshot difference = now;
  for (std::size_t i = 0; i < difference.counts.size(); ++i) {
    difference.counts[i] -= std::min(before.counts[i], difference.counts[i]);
  }
  difference.count = 0;
  for (const std::uint64_t count : difference.counts) difference.count += count;
  difference.sum -= std::min(before.sum, difference.sum);
  return difference;
}

double Trends::utilisation(std::size_t loop) const {
  const std::lock_guard guard(lock_);
  return loop < loops_.size() ? loops_[loop].utilisation : 0;
}

}  // namespace hawser::observe
