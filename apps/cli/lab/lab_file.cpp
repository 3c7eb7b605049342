#include "cli/lab/lab_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace hawser::cli::lab {

using hawser::lab::model_fields;
using hawser::lab::Statistics;
using nlohmann::json;

namespace {

constexpr int format_version = 1;

json json_of(const Statistics& statistics) {
  return {{"mean", statistics.mean},
          {"median", statistics.median},
          {"standard_deviation", statistics.standard_deviation},
          {"repetitions", statistics.count}};
}

Statistics statistics_from(const json& object) {
  return {object.at("mean"), object.at("median"), object.at("standard_deviation"), object.at("repetitions")};
}

json json_of(const LadderRow& row) {
  return {{"step", row.step},
          {"name", row.name},
          {"label", row.label},
          {"transfer", row.transfer},
          {"size_bytes", row.size_bytes},
          {"depth", row.depth},
          {"gbit_per_s", json_of(row.gbit_per_s)},
          {"perftest_gbit_per_s", row.perftest_gbit_per_s},
          {"note", row.note}};
}

LadderRow ladder_row_from(const json& object) {
  return {.step = object.at("step"),
          .name = object.at("name"),
          .label = object.at("label"),
          .transfer = object.at("transfer"),
          .size_bytes = object.at("size_bytes"),
          .depth = object.at("depth"),
          .gbit_per_s = statistics_from(object.at("gbit_per_s")),
          .perftest_gbit_per_s = object.at("perftest_gbit_per_s"),
          .note = object.at("note")};
}

json json_of(const StudyRow& row) {
  return {{"experiment", std::string(1, row.experiment)},
          {"series", row.series},
          {"x", row.x},
          {"credits", row.credits},
          {"size_bytes", row.size_bytes},
          {row.latency ? "latency_us" : "messages_per_s", json_of(row.value)},
          {"receiver_not_ready", row.receiver_not_ready},
          {"predicted", row.predicted},
          {"bottleneck", row.bottleneck},
          {"perftest", row.perftest}};
}

StudyRow study_row_from(const json& object) {
  const std::string experiment = object.at("experiment");
  const bool latency = object.contains("latency_us");
  return {.experiment = experiment.empty() ? 'a' : experiment.front(),
          .series = object.at("series"),
          .x = object.at("x"),
          .latency = latency,
          .credits = object.at("credits"),
          .size_bytes = object.at("size_bytes"),
          .value = statistics_from(object.at(latency ? "latency_us" : "messages_per_s")),
          .receiver_not_ready = object.at("receiver_not_ready"),
          .predicted = object.at("predicted"),
          .bottleneck = object.at("bottleneck"),
          .perftest = object.at("perftest")};
}

json json_of(const FittedModel& fitted) {
  json fields = json::object();
  for (std::size_t i = 0; i < model_fields.size(); ++i) {
    const auto& [name, unit, field] = model_fields[i];
    // JSON has no representation of an infinite error.
    fields[std::string(name)] = {{"value", fitted.model.*field},
                                 {"unit", unit},
                                 {"standard_error", std::min(fitted.standard_error[i], 1e9)},
                                 {"determined", fitted.determined[i]}};
  }
  return {{"fields", fields}, {"rms_relative", fitted.rms_relative}};
}

FittedModel model_from(const json& object) {
  FittedModel fitted;
  for (std::size_t i = 0; i < model_fields.size(); ++i) {
    const json& field = object.at("fields").at(std::string(model_fields[i].name));
    fitted.model.*model_fields[i].field = field.at("value");
    fitted.standard_error[i] = field.at("standard_error");
    fitted.determined[i] = field.at("determined");
  }
  fitted.rms_relative = object.at("rms_relative");
  return fitted;
}

}  // namespace

std::string to_json(const LabFile& file) {
  json object = {{"hawser_lab", format_version}, {"simulated", file.simulated}, {"device", file.device}};
  object["meta"] = json::array();
  for (const auto& [key, value] : file.meta) object["meta"].push_back({key, value});
  object["ladder"] = json::array();
  for (const LadderRow& row : file.ladder) object["ladder"].push_back(json_of(row));
  object["study"] = json::array();
  for (const StudyRow& row : file.study) object["study"].push_back(json_of(row));
  if (file.model) object["model"] = json_of(*file.model);
  return object.dump(1) + "\n";
}

std::expected<LabFile, std::string> from_json(std::string_view text) {
  try {
    const json object = json::parse(text);
    if (object.at("hawser_lab") != format_version) return std::unexpected("it is of another version of hawser lab");
    LabFile file{.simulated = object.at("simulated"), .device = object.at("device")};
    for (const json& pair : object.at("meta")) file.meta.emplace_back(pair.at(0), pair.at(1));
    for (const json& row : object.at("ladder")) file.ladder.push_back(ladder_row_from(row));
    for (const json& row : object.at("study")) file.study.push_back(study_row_from(row));
    if (object.contains("model")) file.model = model_from(object.at("model"));
    return file;
  } catch (const json::exception& error) {
    return std::unexpected(std::string("it is not what hawser lab --json writes: ") + error.what());
  }
}

std::expected<LabFile, std::string> read_lab_file(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) return std::unexpected(fmt::format("{}: {}", path, std::strerror(errno)));
  std::ostringstream text;
  text << stream.rdbuf();
  auto file = from_json(text.str());
  if (!file) return std::unexpected(fmt::format("{}: {}", path, file.error()));
  return file;
}

std::string to_csv(const LabFile& file) {
  std::string text =
      "kind,simulated,experiment,series,x,size_bytes,depth,unit,mean,median,standard_deviation,repetitions,credits,"
      "receiver_not_ready,predicted,bottleneck,perftest\n";
  const auto quoted = [](const std::string& field) { return "\"" + field + "\""; };
  for (const LadderRow& row : file.ladder) {
    text += fmt::format("ladder,{},{},{},{},{},{},gbit_per_s,{:.6g},{:.6g},{:.6g},{},,,,,{:.6g}\n", file.simulated,
                        row.step, quoted(row.label.empty() ? row.name : row.name + ": " + row.label), row.depth,
                        row.size_bytes, row.depth, row.gbit_per_s.mean, row.gbit_per_s.median,
                        row.gbit_per_s.standard_deviation, row.gbit_per_s.count, row.perftest_gbit_per_s);
  }
  for (const StudyRow& row : file.study) {
    text += fmt::format("study,{},{},{},{},{},,{},{:.6g},{:.6g},{:.6g},{},{},{},{:.6g},{},{:.6g}\n", file.simulated,
                        row.experiment, quoted(row.series), row.x, row.size_bytes,
                        row.latency ? "latency_us" : "messages_per_s", row.value.mean, row.value.median,
                        row.value.standard_deviation, row.value.count, row.credits, row.receiver_not_ready,
                        row.predicted, row.bottleneck, row.perftest);
  }
  return text;
}

bool write_file(const std::string& path, std::string_view text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  stream.close();
  if (stream) return true;
  fmt::print(stderr, "hawser: {}: {}\n", path, std::strerror(errno));
  return false;
}

}  // namespace hawser::cli::lab
