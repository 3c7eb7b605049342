#include "bench/results/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/load/processors.h"
#include "bench/load/size.h"
#include "bench/results/result_json.h"

namespace hawser::bench {
namespace {

using nlohmann::json;

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

json meta_of(const Report& report, const RunOptions& options) {
  json meta = environment_of(options, report.started);
  meta.update({
      {"server_version", report.pollers.server.version},
      {"poller", report.pollers.client_poller},
      {"server_poller", report.pollers.server.poller},
      {"reply", options.reply == ReplyKind::echo ? "echo" : "ack"},
      {"handler", options.handler == HandlerKind::function    ? "function"
                  : options.handler == HandlerKind::coroutine ? "coroutine"
                                                              : "protobuf"},
      {"registered", options.registered},
      {"loan", options.loan},
      {"rate_per_s", options.rate_per_s},
      {"server_threads", options.server_threads},
      {"complete", report.complete},
      {"server_memory_bytes_max", report.server_memory_bytes_max},
      {"client_memory_bytes_max", report.client_memory_bytes_max},
  });
  return meta;
}

std::string failure(const std::string& path) { return "cannot write " + path + ": " + std::strerror(errno); }

std::string write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file ? std::string() : failure(path);
}

}  // namespace

json environment_of(const RunOptions& options, const std::string& started) {
  return {
      {"version", HAWSER_VERSION},
      {"compiler", compiler()},
      {"build_type", HAWSER_BUILD_TYPE},
      {"kernel", kernel_release()},
      {"cpu", processor_model()},
      {"cores", usable_processors().size()},
      {"server_cpu", options.server_cpu.value_or(-1)},
      {"client_cpu", options.client_cpu.value_or(-1)},
      {"date", started},
      {"command_line", options.command_line},
  };
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string write_json(const std::string& path, const Report& report, const RunOptions& options) {
  json cells = json::array();
  for (const CellResult& result : report.results) cells.push_back(result_to_json(result));
  json whole = {{"meta", meta_of(report, options)}, {"cells", std::move(cells)}};
  for (const CellResult& result : report.repetitions) whole["repetitions"].push_back(result_to_json(result));
  return write_text(path, whole.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

std::string write_csv(const std::string& path, const Report& report) {
  constexpr const char* columns[] = {"system",      "transport",     "mode",         "wait",      "size_bytes",
                                     "concurrency", "calls_at_once", "seconds",      "calls",     "errors",
                                     "calls_per_s", "gbit_per_s",    "p50_us",       "p90_us",    "p99_us",
                                     "p999_us",     "server_cpu_s",  "client_cpu_s", "repetition"};
  std::string text = fmt::format("{}\n", fmt::join(columns, ","));
  std::vector<CellResult> all = report.results;
  all.insert(all.end(), report.repetitions.begin(), report.repetitions.end());
  for (const CellResult& result : all) {
    const json object = result_to_json(result);
    std::vector<std::string> fields;
    for (const char* column : columns) {
      const json& value = object.at(column);
      fields.push_back(value.is_string() ? value.get<std::string>() : value.dump());
    }
    text += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return write_text(path, text);
}

std::string write_files(const Report& report, const RunOptions& options) {
  std::string wrong = options.json_path.empty() ? std::string() : write_json(options.json_path, report, options);
  const std::string wrong_csv = options.csv_path.empty() ? std::string() : write_csv(options.csv_path, report);
  return wrong.empty() ? wrong_csv : wrong;
}

std::string check_files(const RunOptions& options) {
  for (const std::string& path : {options.json_path, options.csv_path}) {
    if (path.empty()) continue;
    const std::ofstream file(path, std::ios::app);
    if (!file) return failure(path);
  }
  return {};
}

bool say_errors(const std::vector<CellResult>& results) {
  const auto wrong =
      std::ranges::find_if(results, [](const CellResult& one) { return one.errors > 0 || one.calls == 0; });
  if (wrong == results.end()) return false;
  fmt::print(stderr, "hawser-bench: there were errors; the first, {} with {} x {}: {}\n", wrong->system,
             format_size(wrong->cell.size_bytes), wrong->cell.concurrency,
             wrong->first_error.empty() ? "no call ended in time" : wrong->first_error);
  return true;
}

}  // namespace hawser::bench
