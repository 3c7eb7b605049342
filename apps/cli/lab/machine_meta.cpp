#include "cli/lab/machine_meta.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <chrono>
#include <fstream>

namespace hawser::cli::lab {
namespace {

std::string processor_model() {
  std::ifstream stream("/proc/cpuinfo");
  std::string line;
  while (std::getline(stream, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> machine_meta(const CommonOptions& options) {
  utsname names{};
  uname(&names);
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::vector<std::pair<std::string, std::string>> meta = {
      {"hawser", HAWSER_VERSION}, {"date", fmt::format("{:%Y-%m-%d %H:%M UTC}", fmt::gmtime(now))}};
  if (options.simulated) {
    meta.emplace_back("device", fmt::format("simulated, {} Gb/s, seed {}", options.simulated_gbit_per_s, options.seed));
  } else {
    meta.emplace_back("kernel", names.release);
    meta.emplace_back("cpu", processor_model());
  }
  meta.emplace_back("repetitions", fmt::format("{}", options.repetitions));
  return meta;
}

}  // namespace hawser::cli::lab
