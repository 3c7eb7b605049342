#pragma once

#include <array>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/model/fit.h"
#include "lab/model/study.h"
#include "lab/steps/ladder.h"

namespace hawser::cli::lab {

// One measurement of the ladder, summarised over its repetitions.
struct LadderRow {
  unsigned step = 0;
  std::string name;
  std::string label;     // Identifies the variant of the step; may be empty.
  std::string transfer;  // "send", "write", "read".
  std::size_t size_bytes = 0;
  unsigned depth = 1;
  hawser::lab::Statistics gbit_per_s;
  double perftest_gbit_per_s = 0;  // Median of the perftest tool at the same size and depth; 0 if not run.
  std::string note;
};

// One point of the study.
struct StudyRow {
  char experiment = 'a';
  std::string series;
  std::size_t x = 0;
  bool latency = false;
  bool credits = false;
  std::size_t size_bytes = 0;
  hawser::lab::Statistics value;  // Messages/s; for a latency, half of the round trip in us.
  std::uint64_t receiver_not_ready = 0;
  double predicted = 0;    // Prediction of the model; 0 if it does not cover the point.
  std::string bottleneck;  // Bottleneck according to the model.
  double perftest = 0;     // Messages/s of ib_send_bw, median; 0 if not run.

  double gbit_per_s() const noexcept { return value.mean * static_cast<double>(size_bytes) * 8 / 1e9; }
};

struct FittedModel {
  hawser::lab::Model model;
  std::array<double, hawser::lab::model_fields.size()> standard_error{};
  std::array<bool, hawser::lab::model_fields.size()> determined{};
  double rms_relative = 0;
};

// Results of one command on one device. --json writes them, and `report` reads them.
struct LabFile {
  bool simulated = false;
  std::string device;
  std::vector<std::pair<std::string, std::string>> meta;  // Origin of the figures.
  std::vector<LadderRow> ladder;
  std::vector<StudyRow> study;
  std::optional<FittedModel> model;
};

std::string to_json(const LabFile& file);
// The error text describes the fault of the input.
std::expected<LabFile, std::string> from_json(std::string_view text);
std::expected<LabFile, std::string> read_lab_file(const std::string& path);
// Returns a header and a line for each row of the ladder, then the same for the study.
std::string to_csv(const LabFile& file);
// Returns false if the file cannot be written, and prints the reason to stderr.
bool write_file(const std::string& path, std::string_view text);

}  // namespace hawser::cli::lab
