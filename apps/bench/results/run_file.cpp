#include "bench/results/run_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/results/result_json.h"

namespace hawser::bench {

using nlohmann::json;

namespace {

MemoryResult memory_from_json(const json& cell) {
  return {.system = cell.at("system").get<std::string>(),
          .transport = cell.at("transport").get<std::string>(),
          .op = cell.at("op").get<std::string>(),
          .priority = cell.value("priority", ""),
          .block_bytes = cell.at("block_bytes").get<std::size_t>(),
          .batch = cell.at("batch").get<unsigned>(),
          .depth = cell.at("depth").get<unsigned>(),
          .clients = cell.value("clients", 1U),
          .owners = cell.value("owners", 1U),
          .scattered = cell.value("scattered", false),
          .gbit_per_s = cell.at("gbit_per_s").get<double>(),
          .alone_gbit_per_s = cell.value("alone_gbit_per_s", 0.0),
          .post_us = cell.value("post_us", 0.0),
          .p50_us = cell.value("batch_p50_us", 0.0),
          .p99_us = cell.value("batch_p99_us", 0.0),
          .call_alone_p99_us = cell.value("call_idle_p99_us", 0.0),
          .call_beside_p99_us = cell.value("call_busy_p99_us", 0.0)};
}

}  // namespace

std::expected<RunFile, std::string> read_run_file(const std::string& path) try {
  std::ifstream file(path);
  if (!file) return std::unexpected("cannot read " + path + ": " + std::strerror(errno));
  const json whole = json::parse(file);
  RunFile run;
  run.name = path.substr(path.rfind('/') + 1);
  for (const auto& [key, value] : whole.at("meta").items()) {
    run.meta.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  run.reply = whole.at("meta").value("reply", "echo");
  for (const json& cell : whole.at("cells")) {
    if (cell.contains("block_bytes")) {
      run.memory.push_back(memory_from_json(cell));
      continue;
    }
    std::optional<CellResult> result = result_from_json(cell);
    if (!result) return std::unexpected(path + " has a cell that lacks a column: " + cell.dump());
    run.results.push_back(std::move(*result));
  }
  return run;
} catch (const json::exception& error) {
  return std::unexpected(path + " is not a file of --json: " + error.what());
}

}  // namespace hawser::bench
