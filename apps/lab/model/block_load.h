#pragma once

#include <span>
#include <vector>

#include "lab/model/projection.h"

namespace hawser::lab {

// Writes of 4 KB to a block store, as fio sees them.
struct BlockFigures {
  double writes_per_s = 0;
  double mean_us = 0;  // Completion latency.
  double p90_us = 0;
};

// A line of the table that CurveBS over bRPC publishes: writes of 4 KB at random places, by RDMA (UCX) over two network
// cards and by TCP.
struct PublishedBlock {
  unsigned depth;
  BlockFigures rdma;
  BlockFigures tcp;
};
std::span<const PublishedBlock> published_block() noexcept;

// Cost of a write. All resources of the store and of its transport are used evenly: a write uses each of them for
// share_us, so that it meets each of the other writes in flight once. Its mean latency at depth n is
// alone_us + (n - 1) * share_us.
struct WriteCost {
  double alone_us = 0;
  double share_us = 0;
};
// The percentile follows from exponential times at each of alone_us / share_us resources. Nothing is fitted to it.
BlockFigures figures_of(const WriteCost& cost, unsigned depth) noexcept;
// Fitted to two figures of one transport: the latency at the least depth and the rate at the greatest.
WriteCost fitted_cost(std::span<const PublishedBlock> table, BlockFigures PublishedBlock::* transport) noexcept;

// Calls of Hawser with 4 KB over RDMA: latency of one, and time between two of many.
struct BlockCalls {
  Range alone_us;
  Range share_us;
};
// From the simulated device, at the least and the greatest depth of the table. `plan` selects device, calls and seed.
Result<BlockCalls> project_block_calls(CallPlan plan, const Uncertainty& uncertainty);

struct BlockRanges {
  Range writes_per_s;
  Range mean_us;
  Range p90_us;

  void include(const BlockFigures& figures) noexcept;
};
struct BlockProjection {
  unsigned depth = 0;
  BlockRanges rdma;
  BlockRanges tcp;
  Range ratio;  // Writes/s by RDMA to those by TCP of the same store.
};
// The published store with the calls of Hawser in place of its own: docs/lab.md, "Block store".
std::vector<BlockProjection> project_block(const BlockCalls& calls);

}  // namespace hawser::lab
