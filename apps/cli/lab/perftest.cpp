#include "cli/lab/perftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <sstream>

namespace hawser::cli::lab {
namespace {

// TCP port on which the two perftest processes connect.
constexpr unsigned meeting_port = 18'515;
// A client that has not ended by then has lost its server, or the device is too slow to be measured.
constexpr unsigned client_seconds_max = 60;

}  // namespace

std::expected<double, std::string> parse_perftest(std::string_view output) {
  // The lines have five numbers: #bytes #iterations peak average messages.
  std::istringstream lines{std::string(output)};
  std::string line;
  double average = 0;
  bool found = false;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::array<double, 5> figures{};
    std::size_t count = 0;
    while (count < figures.size() && words >> figures[count]) ++count;
    if (count == figures.size()) average = figures[3], found = true;
  }
  if (found) return average;
  return std::unexpected(fmt::format("it printed no figures: {}", output.substr(0, 300)));
}

std::expected<double, std::string> run_perftest(const PerftestPlan& plan) {
  const bool plain = std::all_of(plan.device.begin(), plan.device.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '-' || letter == '.';
  });
  if (!plain) return std::unexpected("the device's name is not a name: " + plan.device);
  const std::string tool = fmt::format("ib_{}_bw", hawser::lab::to_string(plan.transfer));
  const std::string command = fmt::format(
      "{} -F --report_gbits -d {} -i {} -s {} -n {} -p {}{}", tool, plan.device, plan.port, plan.size_bytes,
      std::max<std::uint64_t>(plan.iterations, 5), meeting_port,
      plan.transfer == hawser::lab::TransferMode::read ? "" : fmt::format(" -t {}", std::max(1u, plan.depth)));
  // The server needs some time until it listens; until then the client fails at once. A server ends with the first
  // client that has connected, also if that one fails or does not end, for which `timeout` exits with 124 or 137.
  const std::string script = fmt::format(
      "command -v {0} >/dev/null || {{ echo {0} is not installed: apt-get install perftest; exit 1; }}; "
      "for pair in 1 2 3; do {1} >/dev/null 2>&1 & server=$!; good=; tries=50; "
      "while [ $tries -gt 0 ]; do tries=$((tries - 1)); sleep 0.4; "
      "timeout -k 5 {2} {1} 127.0.0.1 2>&1 && good=1 && break; "
      "[ $? -lt 124 ] || {{ echo the client has not ended in {2} s; break; }}; "
      "kill -0 $server 2>/dev/null || break; done; "
      "kill $server 2>/dev/null; wait $server 2>/dev/null; [ -z $good ] || break; done; true",
      tool, command, client_seconds_max);
  std::FILE* const pipe = popen(script.c_str(), "r");
  if (pipe == nullptr) return std::unexpected(std::string("no shell to run it"));
  std::string output;
  std::array<char, 4096> chunk{};
  while (const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), pipe)) output.append(chunk.data(), count);
  pclose(pipe);
  return parse_perftest(output);
}

}  // namespace hawser::cli::lab
