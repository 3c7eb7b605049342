#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/model/fit.h"
#include "lab/send_receive.h"

namespace hawser::lab {

// Selects the points to measure of the evaluation of Send/Receive connections, (a) to (h).
struct StudyOptions {
  std::string experiments = "abcdefgh";
  std::string series;                 // Selects the series whose names begin with this text.
  std::uint64_t count = 4096;         // Messages of a point over all its connections; at least some windows of each.
  unsigned threads_max = 16;          // Largest number of threads in (e) to (h), which use powers of 2.
  std::size_t size_bytes_max = 8192;  // Largest message in (a) and (d).
  bool without_credits = true;        // Measure each stream without credits too; receivers may not be ready then.
};

struct StudyPoint {
  char experiment = 'a';
  std::string series;  // The line of the figure to which the point belongs.
  std::size_t x = 0;   // Size, window, batch or number of threads: the x axis of the figure.
  bool latency = false;
  StreamPlan plan;  // For a latency, only size and count are used.
};

struct Experiment {
  char letter;
  std::string_view title;
  std::string_view x_name;
};
// Returns the experiments (a) to (h).
const std::vector<Experiment>& experiments();
const Experiment& experiment(char letter);

std::vector<StudyPoint> study_points(const StudyOptions& options);

// Mean, median and sample standard deviation of repetitions.
struct Statistics {
  double mean = 0;
  double median = 0;
  double standard_deviation = 0;
  std::size_t count = 0;
};
Statistics statistics_of(std::vector<double> values);

struct StudySample {
  double message_ns = 0;         // Time between messages; for a latency, the mean of half the round trip.
  double median_latency_ns = 0;  // For a latency only.
  std::uint64_t receiver_not_ready = 0;
};
Result<StudySample> measure(const Testbed& testbed, const StudyPoint& point);

// Returns the workload of a point for the model, or std::nullopt if the model does not cover the point, such as one
// with shared receives.
std::optional<Workload> workload_of(const StudyPoint& point);
// Returns whether the model is fitted to the point: points of (a) to (e), with credits or without receivers that were
// not ready.
bool fitted(const StudyPoint& point, std::uint64_t receiver_not_ready);

}  // namespace hawser::lab
