#include "bench/results/run_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/results/result_json.h"

namespace hawser::bench {

using nlohmann::json;

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
    std::optional<CellResult> result = result_from_json(cell);
    if (!result) return std::unexpected(path + " has a cell that lacks a column: " + cell.dump());
    run.results.push_back(std::move(*result));
  }
  return run;
} catch (const json::exception& error) {
  return std::unexpected(path + " is no file of --json: " + error.what());
}

}  // namespace hawser::bench
