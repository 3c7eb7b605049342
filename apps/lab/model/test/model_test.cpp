#include "lab/model/model.h"

#include <gtest/gtest.h>

#include <vector>

namespace hawser::lab {
namespace {

// Compares the statements of the evaluation of Send/Receive connections on a ConnectX-5 with the projection of a device
// that has this card's figures.
const Model connectx5 = project({.latency_us = 2, .messages_per_s = 14e6, .gbit_per_s = 100});

double rate(const Workload& workload) { return predict(connectx5, workload).messages_per_s(); }
double gbit(const Workload& workload) { return rate(workload) * static_cast<double>(workload.size_bytes) * 8 / 1e9; }

TEST(Projection, GivesBackTheFiguresItWasMadeOf) {
  EXPECT_NEAR(predict_latency_ns(connectx5, 0), 2000, 1e-6);
  EXPECT_NEAR(rate({.window = 256, .batch = 8}), 14e6, 1);
  EXPECT_NEAR(saturating_window(connectx5, 0, 1), 32, 1e-6);
}

TEST(Projection, LatencyIsAConstantAndALineOverSize) {
  const double at_16 = predict_latency_ns(connectx5, 16);
  EXPECT_GT(at_16, 2000);
  EXPECT_LT(at_16, 2100) << "a little more than 2 us";
  const double step = predict_latency_ns(connectx5, 4096) - predict_latency_ns(connectx5, 2048);
  EXPECT_NEAR(predict_latency_ns(connectx5, 8192) - predict_latency_ns(connectx5, 6144), step, 1e-9);
}

TEST(Projection, ThroughputGrowsLinearlyUntil32Outstanding) {
  const double one = rate({.window = 1});
  for (const unsigned window : {2u, 4u, 8u, 16u, 32u}) {
    EXPECT_NEAR(rate({.window = window}) / one, window, 0.02 * window);
    EXPECT_EQ(predict(connectx5, {.window = window / 2}).bottleneck, Bottleneck::window);
  }
  EXPECT_LT(rate({.window = 128}) / rate({.window = 32}), 1.02) << "more does not help";
  EXPECT_EQ(predict(connectx5, {.window = 64}).bottleneck, Bottleneck::sender_processor);
}

TEST(Projection, OutstandingMessagesAreWorthMoreThanAFactorOf5) { EXPECT_GT(rate({.window = 64}), 5 * rate({})); }

TEST(Projection, BatchesOf8AreEnoughAndWorthUpToTwice) {
  const double unbatched = rate({.window = 256});
  const double batched = rate({.window = 256, .batch = 8});
  EXPECT_GT(batched, 1.4 * unbatched);
  EXPECT_LE(batched, 2 * unbatched);
  EXPECT_GT(rate({.window = 256, .batch = 4}), unbatched);
  EXPECT_LT(rate({.window = 256, .batch = 4}), batched);
  for (const unsigned batch : {16u, 32u}) EXPECT_LT(rate({.window = 256, .batch = batch}), 1.01 * batched);
  EXPECT_EQ(predict(connectx5, {.window = 256, .batch = 8}).bottleneck, Bottleneck::message_rate);
}

TEST(Projection, BatchesAloneMeetTheWindowAgain) {
  for (const unsigned batch : {8u, 16u}) {
    EXPECT_EQ(predict(connectx5, {.window = 32, .batch = batch}).bottleneck, Bottleneck::window) << batch;
  }
}

TEST(Projection, BatchedSmallMessagesMakeALittleOver1Point7Gbit) {
  EXPECT_GT(gbit({.size_bytes = 16, .window = 256, .batch = 8}), 1.7);
  EXPECT_LT(gbit({.size_bytes = 16, .window = 256, .batch = 8}), 1.9);
}

TEST(Projection, SequentialIsSublinearAndFarFromTheWire) {
  const double at_4k = gbit({.size_bytes = 4096});
  EXPECT_LT(gbit({.size_bytes = 8192}), 1.95 * at_4k);
  EXPECT_GT(gbit({.size_bytes = 8192}), at_4k);
  EXPECT_LT(gbit({.size_bytes = 8192}), 20);
}

TEST(Projection, UnbatchedIsLinearUntilTheWire) {
  const double at_16 = gbit({.size_bytes = 16, .window = 64});
  for (std::size_t size = 32; size <= 1024; size *= 2) {
    EXPECT_NEAR(gbit({.size_bytes = size, .window = 64}) / at_16, static_cast<double>(size) / 16,
                0.01 * static_cast<double>(size));
  }
  EXPECT_NEAR(gbit({.size_bytes = 8192, .window = 64}), 100, 0.1);
  EXPECT_EQ(predict(connectx5, {.size_bytes = 8192, .window = 64}).bottleneck, Bottleneck::wire);
}

TEST(Projection, BatchedIsLimitedByTheDeviceOnly) {
  for (std::size_t size = 16; size <= 8192; size *= 2) {
    const Bottleneck bottleneck = predict(connectx5, {.size_bytes = size, .window = 256, .batch = 8}).bottleneck;
    EXPECT_EQ(bottleneck, size < 1024 ? Bottleneck::message_rate : Bottleneck::wire) << size;
    EXPECT_GE(gbit({.size_bytes = size, .window = 256, .batch = 8}), gbit({.size_bytes = size, .window = 64}));
  }
}

TEST(Projection, ManyConnectionsShareTheDevice) {
  const Model model = project({.device_messages_per_s = 40e6});
  const auto at = [&](unsigned connections, std::size_t size) {
    return predict(model, {.size_bytes = size, .window = 64, .connections = connections, .receivers = connections});
  };
  EXPECT_NEAR(at(2, 16).messages_per_s() / at(1, 16).messages_per_s(), 2, 0.01);
  EXPECT_NEAR(at(16, 16).messages_per_s(), 40e6, 1) << "several processing units";
  EXPECT_EQ(at(16, 16).bottleneck, Bottleneck::message_rate);
  EXPECT_EQ(at(4, 8192).bottleneck, Bottleneck::wire);
}

TEST(Projection, OneReceiverIsTheBottleneckOfManySenders) {
  const Prediction many = predict(project({.device_messages_per_s = 40e6}), {.window = 64, .connections = 8});
  EXPECT_EQ(many.bottleneck, Bottleneck::receiver_processor);
}

}  // namespace
}  // namespace hawser::lab
