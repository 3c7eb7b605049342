#include "lab/model/block_load.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/try.h"

namespace hawser::lab {
namespace {

constexpr PublishedBlock published_lines[] = {
    {1, {3983, 247, 258}, {2611, 379, 424}},          {2, {7908, 249, 258}, {5313, 372, 408}},
    {4, {15'900, 247, 251}, {10'500, 376, 404}},      {8, {30'800, 256, 249}, {19'700, 403, 429}},
    {16, {55'300, 286, 260}, {35'300, 450, 474}},     {20, {65'200, 304, 269}, {41'500, 478, 506}},
    {24, {73'800, 322, 273}, {47'500, 502, 529}},     {28, {80'600, 344, 285}, {52'300, 532, 562}},
    {32, {87'300, 363, 297}, {57'000, 558, 578}},     {64, {116'000, 549, 510}, {78'800, 808, 1020}},
    {96, {128'000, 745, 1254}, {89'900, 1063, 1909}}, {128, {137'000, 932, 2180}, {96'300, 1324, 2999}},
};

// ---- Of the same document: calls of 4 KB of bRPC, two network cards.
constexpr double published_call_rdma_us = 32;
constexpr double published_call_tcp_us = 85;
// Between two calls of many by RDMA, from the latency of 237 us of 64 in flight.
constexpr double published_share_rdma_us = 237.0 / 64;

// Assumed: the client calls the first copy, which calls the others at the same time.
constexpr double calls_in_a_row = 2;
// Assumed: a call of Hawser over TCP takes between this part and all of the time of one of bRPC.
constexpr double tcp_part_min = 0.5;

// The 90th percentile of a normal distribution is so many standard deviations above its mean.
constexpr double p90_deviations = 1.2816;

constexpr std::uint64_t block_bytes = 4096;

// The time of the published store without its calls, as both columns find it.
Range store_alone_us(const WriteCost& rdma, const WriteCost& tcp) noexcept {
  Range range;
  range.include(rdma.alone_us - calls_in_a_row * published_call_rdma_us);
  range.include(tcp.alone_us - calls_in_a_row * published_call_tcp_us);
  return range;
}

}  // namespace

std::span<const PublishedBlock> published_block() noexcept { return published_lines; }

BlockFigures figures_of(const WriteCost& cost, unsigned depth) noexcept {
  const double mean_us = cost.alone_us + (depth - 1) * cost.share_us;
  const double resources = std::max(1.0, cost.alone_us / cost.share_us);
  return {depth * 1e6 / mean_us, mean_us, mean_us * (1 + p90_deviations / std::sqrt(resources))};
}

WriteCost fitted_cost(std::span<const PublishedBlock> table, BlockFigures PublishedBlock::* transport) noexcept {
  const PublishedBlock& first = table.front();
  const PublishedBlock& last = table.back();
  const double alone_us = (first.*transport).mean_us;
  const double last_us = last.depth * 1e6 / (last.*transport).writes_per_s;
  return {alone_us, (last_us - alone_us) / (last.depth - first.depth)};
}

void BlockRanges::include(const BlockFigures& figures) noexcept {
  writes_per_s.include(figures.writes_per_s);
  mean_us.include(figures.mean_us);
  p90_us.include(figures.p90_us);
}

Result<BlockCalls> project_block_calls(CallPlan plan, const Uncertainty& uncertainty) {
  plan.request_bytes = block_bytes;
  const auto between_us = [&](unsigned in_flight) -> Result<Range> {
    plan.in_flight = in_flight;
    TRY(const CallRanges& found, project_ranges(plan, uncertainty));
    return Range{1e6 / found.calls_per_s.high, 1e6 / found.calls_per_s.low};
  };
  TRY(const Range& alone_us, between_us(published_block().front().depth));
  TRY(const Range& share_us, between_us(published_block().back().depth));
  return BlockCalls{alone_us, share_us};
}

std::vector<BlockProjection> project_block(const BlockCalls& calls) {
  const WriteCost rdma = fitted_cost(published_block(), &PublishedBlock::rdma);
  const WriteCost tcp = fitted_cost(published_block(), &PublishedBlock::tcp);
  const Range alone_us = store_alone_us(rdma, tcp);
  std::vector<BlockProjection> table;
  for (const PublishedBlock& line : published_block()) {
    BlockProjection& row = table.emplace_back(BlockProjection{.depth = line.depth});
    // Every figure grows or falls with each of these values, so that their ends give the ends of the ranges.
    for (const bool slow_store : {false, true}) {
      // The calls of the published store use between nothing of a resource of a write and all that calls alone use.
      for (const bool calls_share : {false, true}) {
        const double store_us = slow_store ? alone_us.high : alone_us.low;
        const double calls_rdma_us = calls_share ? published_share_rdma_us : 0;
        const double calls_tcp_us = tcp.share_us - rdma.share_us + calls_rdma_us;
        const double store_share_us = rdma.share_us - calls_rdma_us;
        for (const bool slow_calls : {false, true}) {
          const double call_us = slow_calls ? calls.alone_us.high : calls.alone_us.low;
          const double share_us = slow_calls ? calls.share_us.high : calls.share_us.low;
          const BlockFigures by_rdma =
              figures_of({store_us + calls_in_a_row * call_us, store_share_us + share_us}, line.depth);
          row.rdma.include(by_rdma);
          for (const double part : {tcp_part_min, 1.0}) {
            const BlockFigures by_tcp = figures_of(
                {store_us + calls_in_a_row * part * published_call_tcp_us, store_share_us + part * calls_tcp_us},
                line.depth);
            row.tcp.include(by_tcp);
            row.ratio.include(by_rdma.writes_per_s / by_tcp.writes_per_s);
          }
        }
      }
    }
  }
  return table;
}

}  // namespace hawser::lab
