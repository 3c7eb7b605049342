// The model of a block store beside its published figures, and its projections.
#include "lab/model/block_load.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hawser::lab {
namespace {

using Transport = BlockFigures PublishedBlock::*;

WriteCost fitted_store(Transport transport) { return fitted_cost(published_block(), transport); }

// The largest factor between the model and the published figures of all depths.
double worst_factor(Transport transport, double BlockFigures::* figure) {
  double worst = 1;
  for (const PublishedBlock& line : published_block()) {
    const double model = figures_of(fitted_store(transport), line.depth).*figure;
    const double found = line.*transport.*figure;
    worst = std::max({worst, model / found, found / model});
  }
  return worst;
}

TEST(BlockStoreModel, ReproducesTheFittedFigures) {
  for (const Transport transport : {&PublishedBlock::rdma, &PublishedBlock::tcp}) {
    const PublishedBlock& first = published_block().front();
    const PublishedBlock& last = published_block().back();
    EXPECT_DOUBLE_EQ(figures_of(fitted_store(transport), first.depth).mean_us, (first.*transport).mean_us);
    EXPECT_NEAR(figures_of(fitted_store(transport), last.depth).writes_per_s, (last.*transport).writes_per_s, 1e-3);
  }
}

// All figures between the fitted ones. A change of the model that moves a prediction is seen.
TEST(BlockStoreModel, PredictsTheOtherFiguresWithinTheseFactors) {
  EXPECT_NEAR(worst_factor(&PublishedBlock::rdma, &BlockFigures::writes_per_s), 1.143, 0.002);
  EXPECT_NEAR(worst_factor(&PublishedBlock::tcp, &BlockFigures::writes_per_s), 1.090, 0.002);
  EXPECT_NEAR(worst_factor(&PublishedBlock::rdma, &BlockFigures::mean_us), 1.154, 0.002);
  EXPECT_NEAR(worst_factor(&PublishedBlock::tcp, &BlockFigures::mean_us), 1.098, 0.002);
}

TEST(BlockStoreModel, MissesThePercentilesByThisFactor) {
  EXPECT_NEAR(worst_factor(&PublishedBlock::rdma, &BlockFigures::p90_us), 1.96, 0.01);
  EXPECT_NEAR(worst_factor(&PublishedBlock::tcp, &BlockFigures::p90_us), 1.91, 0.01);
}

TEST(BlockStoreModel, PredictsTheRatioOfTheTransports) {
  for (const PublishedBlock& line : published_block()) {
    const double model = figures_of(fitted_store(&PublishedBlock::rdma), line.depth).writes_per_s /
                         figures_of(fitted_store(&PublishedBlock::tcp), line.depth).writes_per_s;
    EXPECT_NEAR(model / (line.rdma.writes_per_s / line.tcp.writes_per_s), 1, 0.055) << line.depth;
  }
}

TEST(BlockProjection, ContainsTheCostsOfItsEndsAtEachDepth) {
  const std::vector<BlockProjection> rows = project_block({.alone_us = {6, 10}, .share_us = {0.7, 1}});
  ASSERT_EQ(rows.size(), published_block().size());
  // The store: 183 us and 5.4 us less 3.7 us at the low end. 209 us and 5.4 us at the high end.
  const WriteCost rdma = fitted_store(&PublishedBlock::rdma);
  for (const BlockProjection& row : rows) {
    const double others = row.depth - 1;
    EXPECT_NEAR(row.rdma.mean_us.low, 183 + 2 * 6 + others * (rdma.share_us - 237.0 / 64 + 0.7), 1e-6);
    EXPECT_NEAR(row.rdma.mean_us.high, 209 + 2 * 10 + others * (rdma.share_us + 1), 1e-6);
    EXPECT_NEAR(row.rdma.writes_per_s.high, row.depth * 1e6 / row.rdma.mean_us.low, 1e-6);
    EXPECT_LT(row.tcp.mean_us.low, row.tcp.mean_us.high);
    EXPECT_LT(row.rdma.p90_us.low, row.rdma.p90_us.high);
    EXPECT_LT(row.ratio.low, row.ratio.high);
  }
}

// The same store answers later by slower calls.
TEST(BlockProjection, SlowerCallsGiveFewerWrites) {
  const std::vector<BlockProjection> fast = project_block({.alone_us = {6, 6}, .share_us = {0.7, 0.7}});
  const std::vector<BlockProjection> slow = project_block({.alone_us = {12, 12}, .share_us = {1.4, 1.4}});
  for (std::size_t i = 0; i < fast.size(); ++i) {
    EXPECT_LT(slow[i].rdma.writes_per_s.high, fast[i].rdma.writes_per_s.high);
    EXPECT_LT(slow[i].ratio.low, fast[i].ratio.low);
    EXPECT_EQ(slow[i].tcp.writes_per_s.high, fast[i].tcp.writes_per_s.high);
  }
}

TEST(BlockProjection, CallsComeFromTheSimulatedDevice) {
  CallPlan plan{.calls = 500};
  plan.device.gbit_per_s = 50;
  const Result<BlockCalls> calls = project_block_calls(plan, {.draws = 2});
  ASSERT_TRUE(calls) << calls.error().describe();
  EXPECT_GT(calls->share_us.low, 4096 * 8 / 50e3) << "not faster than the link";
  EXPECT_GT(calls->alone_us.low, 4 * calls->share_us.low) << "one at a time has two trips";
  EXPECT_LT(calls->alone_us.low, calls->alone_us.high);
}

}  // namespace
}  // namespace hawser::lab
