#include "bench/page/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace hawser::bench {
namespace {

constexpr std::string_view our_name = "hawser";

PageGroup& group_of(std::vector<PageGroup>& groups, const Cell& cell, const std::string& reply) {
  for (PageGroup& group : groups) {
    if (group.transport == cell.transport && group.mode == cell.mode && group.wait == cell.wait && group.reply == reply)
      return group;
  }
  groups.push_back({cell.transport, cell.mode, cell.wait, reply, {}, {}, {}});
  return groups.back();
}

PageSeries& series_of(PageGroup& group, const std::string& system, std::size_t run) {
  for (PageSeries& series : group.series) {
    if (series.system == system && series.run == run) return series;
  }
  group.series.push_back({system, system, run, {}});
  return group.series.back();
}

template <class Value>
void insert_sorted(std::vector<Value>& values, Value value) {
  const auto place = std::ranges::lower_bound(values, value);
  if (place == values.end() || *place != value) values.insert(place, value);
}

}  // namespace

const CellResult* PageSeries::find(std::size_t size_bytes, unsigned concurrency) const noexcept {
  for (const CellResult& one : results) {
    if (one.cell.size_bytes == size_bytes && one.cell.concurrency == concurrency) return &one;
  }
  return nullptr;
}

const PageSeries* PageGroup::ours_for(const PageSeries& peer) const noexcept {
  const PageSeries* found = nullptr;
  for (const PageSeries& one : series) {
    if (one.system == our_name && (found == nullptr || one.run == peer.run)) found = &one;
  }
  return found;
}

bool PageGroup::has_ratios() const noexcept {
  return std::ranges::any_of(series, [](const PageSeries& one) { return one.system == our_name; }) &&
         std::ranges::any_of(series, [](const PageSeries& one) { return one.system != our_name; });
}

std::vector<PageGroup> group_runs(std::span<const RunFile> runs) {
  std::vector<PageGroup> groups;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    for (const CellResult& result : runs[run].results) {
      PageGroup& group = group_of(groups, result.cell, runs[run].reply);
      series_of(group, result.system, run).results.push_back(result);
      insert_sorted(group.sizes_bytes, result.cell.size_bytes);
      insert_sorted(group.concurrencies, result.cell.concurrency);
    }
  }
  for (PageGroup& group : groups) {
    std::vector<PageSeries> ordered;
    for (const bool ours : {true, false}) {
      for (const PageSeries& one : group.series) {
        if ((one.system == our_name) == ours) ordered.push_back(one);
      }
    }
    group.series = std::move(ordered);
    for (PageSeries& one : group.series) {
      const auto same = std::ranges::count(group.series, one.system, &PageSeries::system);
      if (same > 1) one.label = fmt::format("{}, run {}", one.system, one.run + 1);
    }
  }
  return groups;
}

}  // namespace hawser::bench
