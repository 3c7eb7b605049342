#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/model/fit.h"
#include "lab/send_receive.h"

namespace hawser::lab {

// The evaluation of Send/Receive connections, (a) to (h), as points to measure.
struct StudyOptions {
  std::string experiments = "abcdefgh";
  std::string series;                 // Of their lines, those whose names begin with this.
  std::uint64_t count = 4096;         // Messages of a point, over all its connections; at least some windows of each.
  unsigned threads_max = 16;          // Of (e) to (h), in powers of 2.
  std::size_t size_bytes_max = 8192;  // Of (a) and (d).
  bool without_credits = true;        // Each stream also as fast as senders can, which may find receivers not ready.
};

struct StudyPoint {
  char experiment = 'a';
  std::string series;  // The line of the figure that it belongs to.
  std::size_t x = 0;   // Size, window, batch or threads, as the figure has it.
  bool latency = false;
  StreamPlan plan;  // Of a latency, size and count only.
};

struct Experiment {
  char letter;
  std::string_view title;
  std::string_view x_name;
};
// (a) to (h).
const std::vector<Experiment>& experiments();
const Experiment& experiment(char letter);

std::vector<StudyPoint> study_points(const StudyOptions& options);

// Of repetitions: the mean, the median, and the standard deviation of a sample.
struct Statistics {
  double mean = 0;
  double median = 0;
  double standard_deviation = 0;
  std::size_t count = 0;
};
Statistics statistics_of(std::vector<double> values);

struct StudySample {
  double message_ns = 0;         // Between messages; of a latency, the mean half round trip.
  double median_latency_ns = 0;  // Of a latency.
  std::uint64_t receiver_not_ready = 0;
};
Result<StudySample> measure(const Testbed& testbed, const StudyPoint& point);

// How the model sees a point; nothing if it leaves out what the point is about, such as shared receives.
std::optional<Workload> workload_of(const StudyPoint& point);
// Whether the model is fitted to it: (a) to (e), with credits or where nobody was found not ready.
bool fitted(const StudyPoint& point, std::uint64_t receiver_not_ready);

}  // namespace hawser::lab
