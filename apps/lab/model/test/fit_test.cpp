#include "lab/model/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/random.h"

namespace hawser::lab {
namespace {

// Returns the points of the experiments (a) to (e).
std::vector<FitPoint> points_of_experiments() {
  std::vector<FitPoint> points;
  for (std::size_t size = 16; size <= 8192; size *= 2) {
    points.push_back({.workload = {.size_bytes = size}, .latency = true});
    points.push_back({.workload = {.size_bytes = size, .window = 1}});
    points.push_back({.workload = {.size_bytes = size, .window = 64}});
    points.push_back({.workload = {.size_bytes = size, .window = 256, .batch = 8}});
  }
  for (unsigned window = 1; window <= 128; window *= 2) points.push_back({.workload = {.window = window}});
  for (const unsigned window : {32u, 64u, 128u, 256u}) {
    for (unsigned batch = 1; batch <= 32; batch *= 2) {
      points.push_back({.workload = {.window = window, .batch = batch}});
    }
  }
  for (const unsigned threads : {1u, 2u, 4u, 8u, 16u}) {
    points.push_back({.workload = {.window = 64, .connections = threads, .receivers = threads}});
  }
  return points;
}

double gaussian(Random& random) {
  const auto uniform = [&] { return (static_cast<double>(random.next() >> 11) + 0.5) * 0x1.0p-53; };
  return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
}

std::vector<FitPoint> measured(const Model& model, double noise, std::uint64_t seed) {
  Random random(seed);
  std::vector<FitPoint> points = points_of_experiments();
  for (FitPoint& point : points) {
    const double ns = point.latency ? predict_latency_ns(model, point.workload.size_bytes)
                                    : predict(model, point.workload).message_ns;
    point.measured_ns = ns * std::exp(noise * gaussian(random));
  }
  return points;
}

void expect_recovered(const Model& model, double noise, std::uint64_t seed) {
  const std::vector<FitPoint> points = measured(model, noise, seed);
  const Fit fit = fit_model(points);
  EXPECT_LT(fit.rms_relative, 1.3 * noise + 1e-4) << "seed " << seed;
  for (std::size_t i = 0; i < model_fields.size(); ++i) {
    const auto& [name, unit, field] = model_fields[i];
    // All fields that limit the throughput are determined to a few percent. o_recv is only 3 % of the latency.
    if (name != "o_byte" && name != "o_recv") {
      EXPECT_NEAR(fit.model.*field, model.*field, (0.01 + 5 * noise) * (model.*field)) << name << ", seed " << seed;
    }
    if (fit.determined[i]) {
      const double logarithm = std::log(fit.model.*field / (model.*field));
      EXPECT_LT(std::abs(logarithm), 4 * fit.standard_error[i]) << name << ", seed " << seed;
    }
  }
}

const Model card = {.o_post_ns = 80,
                    .o_send_ns = 50,
                    .o_byte_ns = 1e-6,
                    .o_recv_ns = 60,
                    .gap_ns = 71,
                    .device_gap_ns = 25,
                    .gap_per_byte_ns = 0.082,
                    .latency_ns = 1750,
                    .latency_per_byte_ns = 0.2};

TEST(Fit, RecoversWhatExactPointsWereMadeOf) { expect_recovered(card, 0, 1); }

TEST(Fit, RecoversWhatNoisyPointsWereMadeOf) {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u}) expect_recovered(card, 0.02, seed);
}

TEST(Fit, TellsWhichFieldsThePointsDetermine) {
  const Fit fit = fit_model(measured(card, 0.01, 7));
  for (std::size_t i = 0; i < model_fields.size(); ++i) {
    EXPECT_EQ(fit.determined[i], model_fields[i].name != "o_byte") << model_fields[i].name;
  }
}

// The device is software: the processors do all the work.
TEST(Fit, RecoversADeviceWhoseProcessorDoesTheWork) {
  const Model soft = {.o_post_ns = 3000,
                      .o_send_ns = 9000,
                      .o_byte_ns = 1.5,
                      .o_recv_ns = 6000,
                      .gap_ns = 1,
                      .device_gap_ns = 1,
                      .gap_per_byte_ns = 0.01,
                      .latency_ns = 4000,
                      .latency_per_byte_ns = 0.5};
  const Fit fit = fit_model(measured(soft, 0.02, 3));
  EXPECT_LT(fit.rms_relative, 0.03);
  EXPECT_NEAR(fit.model.o_byte_ns, 1.5, 0.2);
  EXPECT_NEAR(fit.model.o_send_ns + fit.model.o_post_ns, 12000, 600);
}

TEST(Fit, NamesTheBottleneckOfEachPoint) {
  const std::vector<FitPoint> points = measured(card, 0, 1);
  const Fit fit = fit_model(points);
  ASSERT_EQ(fit.residuals.size(), points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].latency) continue;
    const Prediction true_one = predict(card, points[i].workload);
    EXPECT_NEAR(fit.residuals[i].predicted_ns, true_one.message_ns, 0.01 * true_one.message_ns);
    EXPECT_EQ(fit.residuals[i].bottleneck, true_one.bottleneck) << "point " << i;
  }
}

TEST(Fit, TooFewPointsDetermineNothing) {
  const FitPoint one = {.workload = {.window = 1}, .measured_ns = 4000};
  const Fit fit = fit_model(std::span(&one, 1));
  for (const bool determined : fit.determined) EXPECT_FALSE(determined);
  EXPECT_TRUE(std::isfinite(fit.rms_relative));
}

}  // namespace
}  // namespace hawser::lab
