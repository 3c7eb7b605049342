#include "bench/results/medians.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hawser::bench {
namespace {

template <class Column>
double median(std::span<const CellResult> repetitions, Column column) {
  std::vector<double> values;
  for (const CellResult& one : repetitions) values.push_back(column(one));
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

CellResult median_of(std::span<const CellResult> repetitions) {
  CellResult result = repetitions.front();
  result.repetition = 0;
  for (const auto column : {&CellResult::seconds, &CellResult::p50_us, &CellResult::p90_us, &CellResult::p99_us,
                            &CellResult::p999_us, &CellResult::server_cpu_s, &CellResult::client_cpu_s}) {
    result.*column = median(repetitions, [=](const CellResult& one) { return one.*column; });
  }
  // The counts belong to slightly different times, so the median is taken of the rates.
  const double calls_per_s = median(repetitions, [](const CellResult& one) { return one.calls_per_s(); });
  result.calls = static_cast<std::uint64_t>(std::llround(calls_per_s * result.seconds));
  result.errors = 0;
  result.first_error.clear();
  for (const CellResult& one : repetitions) {
    result.errors += one.errors;
    if (result.first_error.empty()) result.first_error = one.first_error;
  }
  return result;
}

double ratio_of(const CellResult& ours, const CellResult& peer) noexcept {
  return peer.calls == 0 ? 0 : ours.calls_per_s() / peer.calls_per_s();
}

}  // namespace hawser::bench
