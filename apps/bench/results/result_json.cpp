#include "bench/results/result_json.h"

#include <nlohmann/json.hpp>

namespace hawser::bench {

using nlohmann::json;

json result_to_json(const CellResult& result) {
  const Cell& cell = result.cell;
  json object = {
      {"system", result.system},
      {"transport", cell.transport},
      {"mode", to_string(cell.mode)},
      {"wait", to_string(cell.wait)},
      {"size_bytes", cell.size_bytes},
      {"concurrency", cell.concurrency},
      {"repetition", result.repetition},
      {"calls_at_once", result.calls_at_once},
      {"seconds", result.seconds},
      {"calls", result.calls},
      {"errors", result.errors},
      {"calls_per_s", result.calls_per_s()},
      {"gbit_per_s", result.gbit_per_s()},
      {"p50_us", result.p50_us},
      {"p90_us", result.p90_us},
      {"p99_us", result.p99_us},
      {"p999_us", result.p999_us},
      {"server_cpu_s", result.server_cpu_s},
      {"client_cpu_s", result.client_cpu_s},
  };
  if (!result.first_error.empty()) object["first_error"] = result.first_error;
  return object;
}

std::optional<CellResult> result_from_json(const json& object) {
  try {
    const std::optional<Mode> mode = parse_mode(object.at("mode").get<std::string>());
    const std::optional<Wait> wait = parse_wait(object.at("wait").get<std::string>());
    if (!mode || !wait) return std::nullopt;
    CellResult result;
    object.at("system").get_to(result.system);
    result.cell = {object.at("transport"), *mode, *wait, object.at("size_bytes"), object.at("concurrency")};
    result.repetition = object.value("repetition", 0u);
    object.at("seconds").get_to(result.seconds);
    object.at("calls").get_to(result.calls);
    object.at("errors").get_to(result.errors);
    object.at("p50_us").get_to(result.p50_us);
    object.at("p90_us").get_to(result.p90_us);
    object.at("p99_us").get_to(result.p99_us);
    object.at("p999_us").get_to(result.p999_us);
    object.at("server_cpu_s").get_to(result.server_cpu_s);
    object.at("client_cpu_s").get_to(result.client_cpu_s);
    object.at("calls_at_once").get_to(result.calls_at_once);
    result.first_error = object.value("first_error", std::string());
    return result;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace hawser::bench
