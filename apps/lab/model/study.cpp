#include "lab/model/study.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/try.h"

namespace hawser::lab {
namespace {

constexpr std::array<std::size_t, 3> thread_sizes = {16, 512, 8192};
// Least number of windows of each connection, so that the beginning and the end of the stream have little weight.
constexpr std::uint64_t windows_min = 16;

std::string bytes_text(std::size_t bytes) { return std::to_string(bytes) + " B"; }

class Points {
 public:
  explicit Points(const StudyOptions& options) : options_(options) {}

  void add(char letter, const std::string& series, std::size_t x, StreamPlan plan) {
    plan.count = std::max(options_.count / plan.connections, windows_min * plan.window);
    plan.credits = true;
    points_.push_back({letter, series, x, false, plan});
    if (!options_.without_credits) return;
    plan.credits = false;
    points_.push_back({letter, series + ", no credits", x, false, plan});
  }
  void latencies() {
    for (std::size_t size = 16; size <= options_.size_bytes_max; size *= 2) {
      StreamPlan plan{.size_bytes = size};
      plan.count = std::max<std::uint64_t>(20, options_.count / 8);
      points_.push_back({'a', "half round trip", size, true, plan});
    }
  }
  void windows() {
    for (unsigned window = 1; window <= 128; window *= 2) add('b', "16 B", window, {.window = window});
  }
  void batches() {
    for (const unsigned window : {32u, 64u, 128u, 256u}) {
      for (unsigned batch = 1; batch <= 32; batch *= 2) {
        add('c', std::to_string(window) + " outstanding", batch,
            {.window = window, .batch = batch, .signal_each = false});
      }
    }
  }
  void sizes() {
    for (std::size_t size = 16; size <= options_.size_bytes_max; size *= 2) {
      add('d', "sequential", size, {.size_bytes = size, .window = 1});
      add('d', "unbatched, 64 outstanding", size, {.size_bytes = size, .window = 64});
      add('d', "batched, 8 of 256", size, {.size_bytes = size, .window = 256, .batch = 8, .signal_each = false});
    }
  }
  void threads(char letter, const std::string& prefix, const StreamPlan& base) {
    for (const std::size_t size : thread_sizes) {
      for (unsigned threads = 1; threads <= options_.threads_max; threads *= 2) {
        StreamPlan plan = base;
        plan.size_bytes = size;
        plan.window = 64;
        plan.connections = threads;
        add(letter, prefix + bytes_text(size), threads, plan);
      }
    }
  }
  // Adds points that vary the receiver's batches in a case where the receiver is the bottleneck.
  void receive_batching() {
    for (const auto& [poll, repost] : {std::pair{1u, 1u}, std::pair{1u, 8u}, std::pair{32u, 1u}}) {
      for (unsigned threads = 1; threads <= options_.threads_max; threads *= 2) {
        const StreamPlan plan{.size_bytes = 512,
                              .window = 64,
                              .connections = threads,
                              .one_receiver = true,
                              .poll_burst = poll,
                              .repost_batch = repost};
        add('g', "512 B, polled " + std::to_string(poll) + ", posted " + std::to_string(repost), threads, plan);
      }
    }
  }
  std::vector<StudyPoint> take() {
    std::erase_if(points_, [this](const StudyPoint& point) { return !point.series.starts_with(options_.series); });
    return std::move(points_);
  }

 private:
  const StudyOptions& options_;
  std::vector<StudyPoint> points_;
};

}  // namespace

const std::vector<Experiment>& experiments() {
  static const std::vector<Experiment> all = {
      {'a', "Latency by message size", "message size (B)"},
      {'b', "Throughput by unacknowledged messages, 16 B", "unacknowledged messages"},
      {'c', "Throughput by batch size, 16 B", "work requests a doorbell"},
      {'d', "Throughput by message size", "message size (B)"},
      {'e', "T threads, T connections", "threads"},
      {'f', "T threads over one shared receive queue", "threads"},
      {'g', "N senders, one receiver, one completion queue", "senders"},
      {'h', "N senders, one receiver, shared receive queue", "senders"},
  };
  return all;
}

const Experiment& experiment(char letter) {
  return experiments()[static_cast<std::size_t>(std::clamp(letter, 'a', 'h') - 'a')];
}

std::vector<StudyPoint> study_points(const StudyOptions& options) {
  Points points(options);
  for (const char letter : options.experiments) {
    switch (letter) {
      case 'a': points.latencies(); break;
      case 'b': points.windows(); break;
      case 'c': points.batches(); break;
      case 'd': points.sizes(); break;
      case 'e': points.threads('e', "", {}); break;
      case 'f':
        points.threads('f', "central re-poster, ", {.receives = Receives::shared_central});
        points.threads('f', "ours, ", {.receives = Receives::shared_by_each});
        break;
      case 'g':
        points.threads('g', "", {.one_receiver = true});
        points.receive_batching();
        break;
      case 'h': points.threads('h', "", {.one_receiver = true, .receives = Receives::shared_by_each}); break;
      default: break;
    }
  }
  return points.take();
}

Statistics statistics_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t count = values.size();
  Statistics result{.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count),
                    .median = (values[count / 2] + values[(count - 1) / 2]) / 2,
                    .count = count};
  if (count < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.standard_deviation = std::sqrt(squares / static_cast<double>(count - 1));
  return result;
}

Result<StudySample> measure(const Testbed& testbed, const StudyPoint& point) {
  if (point.latency) {
    TRY(std::vector<double>&& trips,
        run_ping_pong(testbed, {.size_bytes = point.plan.size_bytes, .count = point.plan.count}));
    const Statistics all = statistics_of(std::move(trips));
    return StudySample{.message_ns = all.mean, .median_latency_ns = all.median};
  }
  TRY(const StreamResult& result, run_stream(testbed, point.plan));
  return StudySample{.message_ns = result.message_ns(), .receiver_not_ready = result.receiver_not_ready};
}

std::optional<Workload> workload_of(const StudyPoint& point) {
  const StreamPlan& plan = point.plan;
  if (plan.receives != Receives::own) return std::nullopt;
  return Workload{.size_bytes = plan.size_bytes,
                  .window = plan.window,
                  .batch = plan.batch,
                  .connections = plan.connections,
                  .receivers = plan.one_receiver ? 1 : plan.connections};
}

bool fitted(const StudyPoint& point, std::uint64_t receiver_not_ready) {
  return point.experiment <= 'e' && workload_of(point) && (point.latency || point.plan.credits) &&
         receiver_not_ready == 0;
}

}  // namespace hawser::lab
