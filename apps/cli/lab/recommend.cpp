#include "cli/lab/recommend.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

namespace hawser::cli::lab {
namespace {

// Ratios below this are noise.
constexpr double worth_while = 1.03;

class Figures {
 public:
  explicit Figures(const std::vector<LabFile>& files) : files_(files) {}

  // Returns messages/s with credits; 0 if not measured.
  double rate(char experiment, const std::string& series, std::size_t x) const {
    for (const LabFile& file : files_) {
      for (const StudyRow& row : file.study) {
        if (row.experiment == experiment && row.series == series && row.x == x) return row.value.median;
      }
    }
    return 0;
  }
  double best_rate(char experiment, const std::string& series) const {
    double best = 0;
    for (const LabFile& file : files_) {
      for (const StudyRow& row : file.study) {
        if (row.experiment == experiment && row.series == series) best = std::max(best, row.value.median);
      }
    }
    return best;
  }
  // Returns Gb/s of a step.
  double ladder(unsigned step, const std::string& label) const {
    for (const LabFile& file : files_) {
      for (const LadderRow& row : file.ladder) {
        if (row.step == step && row.label == label) return row.gbit_per_s.median;
      }
    }
    return 0;
  }
  const FittedModel* model() const {
    for (const LabFile& file : files_) {
      if (file.model) return &*file.model;
    }
    return nullptr;
  }

 private:
  const std::vector<LabFile>& files_;
};

// Returns the smallest x of a series whose rate reaches the given part of the best rate.
std::optional<std::size_t> enough(const Figures& figures, char experiment, const std::string& series,
                                  std::size_t x_max) {
  const double best = figures.best_rate(experiment, series);
  if (best <= 0) return std::nullopt;
  for (std::size_t x = 1; x <= x_max; x *= 2) {
    if (figures.rate(experiment, series, x) * worth_while >= best) return x;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Recommendation> recommend(const std::vector<LabFile>& files) {
  const Figures figures(files);
  std::vector<Recommendation> result;
  if (const auto window = enough(figures, 'b', "16 B", 128)) {
    // Credits return in quarters of the receive queue. The queue covers the window while one quarter is outstanding.
    const std::size_t receives = std::bit_ceil(*window + *window / 4 + 1);
    result.push_back({"recv_queue_depth", fmt::format("{}", std::clamp<std::size_t>(receives, 8, 4096)),
                      fmt::format("(b): {} messages outstanding reach the best rate", *window)});
    result.push_back({"send_queue_depth", fmt::format("{}", std::clamp<std::size_t>(4 * receives, 128, 16'384)),
                      "room for the receive queue's messages, their control and unsignalled ones"});
  }
  if (const auto batch = enough(figures, 'c', "256 outstanding", 32)) {
    result.push_back({"signal_every", fmt::format("{}", std::max<std::size_t>(2 * *batch, 8)),
                      fmt::format("(c): chains of {} reach the best rate, a completion for two of them", *batch)});
  }
  if (const FittedModel* const fitted = figures.model(); fitted != nullptr) {
    const double byte_ns = std::max(fitted->model.gap_per_byte_ns, fitted->model.o_byte_ns);
    const double message_ns = fitted->model.o_post_ns + fitted->model.o_send_ns;
    if (byte_ns > 0) {
      // The chunk is so large that the cost of its message is 5 % of its time.
      const double bytes = std::clamp(20 * message_ns / byte_ns, 4096.0, 1048576.0);
      result.push_back(
          {"chunk_bytes", fmt::format("{}", std::bit_ceil(static_cast<std::size_t>(bytes))),
           fmt::format("the model: a message costs {:.0f} ns besides {:.3g} ns a byte; longer ones gain less "
                       "than 5 %",
                       message_ns, byte_ns)});
    }
  }
  const double from_memory = figures.ladder(9, "64 B from memory");
  const double from_inline = figures.ladder(9, "64 B inline");
  if (from_memory > 0 && from_inline > 0) {
    const double gain = from_inline / from_memory;
    result.push_back({"inline_bytes", gain * worth_while >= 1 ? "256" : "0",
                      fmt::format("ladder 9: inline makes {:.2f} of what memory does at 64 B", gain)});
  }
  const double small_pages = figures.ladder(11, "4 KiB pages");
  const double huge_pages = figures.ladder(11, "2 MiB pages");
  if (small_pages > 0 && huge_pages > 0) {
    result.push_back({"huge_pages", huge_pages * worth_while >= small_pages ? "true" : "false",
                      fmt::format("ladder 11: {:.2f} of what 4 KiB pages make", huge_pages / small_pages)});
  }
  const double own = figures.best_rate('g', "512 B");
  const double shared = figures.best_rate('h', "512 B");
  if (own > 0 && shared > 0) {
    const bool fast = shared * 1.1 >= own;
    result.push_back({"shared_receive_queue", fast ? "true" : "false",
                      fmt::format("(g), (h): shared receives make {:.2f} of what own ones do at 512 B{}", shared / own,
                                  fast ? "" : "; they save memory with many connections")});
  }
  const double one = figures.best_rate('g', "512 B, polled 1, posted 8");
  if (own > 0 && one > 0) {
    const bool gains = own > worth_while * one;
    result.push_back({"poll_burst", "32",
                      fmt::format("(g): {:.2f} of what one completion at a time makes{}", own / one,
                                  gains ? "" : "; it costs nothing either")});
  }
  return result;
}

}  // namespace hawser::cli::lab
