#include "bench/memory/memory_perftest.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "bench/baseline/baseline_socket.h"
#include "bench/load/processors.h"

namespace hawser::bench {
namespace {

constexpr std::size_t in_flight_max = 128;
constexpr unsigned latency_iterations = 4000;
constexpr unsigned attempts_max = 100;  // Attempts to connect, until the server listens.
constexpr std::chrono::milliseconds attempt_pause(50);

std::string first_device() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& one : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    names.push_back(one.path().filename());
  }
  return names.empty() ? std::string() : *std::min_element(names.begin(), names.end());
}

// The server of one test. It ends with the test, or when this is destroyed.
class PerftestServer {
 public:
  PerftestServer(const std::string& command, std::optional<int> cpu) {
    std::fflush(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    if (cpu && *cpu >= 0) static_cast<void>(pin_to(*cpu));
    setpgid(0, 0);
    const std::string quiet = "exec " + command + " > /dev/null 2>&1";
    execlp("sh", "sh", "-c", quiet.c_str(), nullptr);
    _exit(1);
  }
  PerftestServer(const PerftestServer&) = delete;
  PerftestServer& operator=(const PerftestServer&) = delete;
  ~PerftestServer() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }

 private:
  pid_t process_ = -1;
};

// The numbers of the line of results, which begins with the size of the blocks.
std::vector<double> run_client(const std::string& command, std::size_t block) {
  FILE* const output = popen((command + " 2>/dev/null").c_str(), "r");
  if (output == nullptr) return {};
  std::vector<double> found;
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), output) != nullptr) {
    std::vector<double> numbers;
    char* at = line.data();
    for (char* end = nullptr;; at = end) {
      const double number = std::strtod(at, &end);
      if (end == at) break;
      numbers.push_back(number);
    }
    if (numbers.size() >= 4 && numbers.front() == static_cast<double>(block)) found = std::move(numbers);
  }
  return pclose(output) == 0 ? found : std::vector<double>();
}

}  // namespace

PerftestMeasured measure_perftest(const RunOptions& options) {
  const std::size_t in_flight = options.memory_batch * options.memory_depth;
  const bool latency = in_flight == 1;
  const std::string program = fmt::format("ib_{}_{}", options.memory_op, latency ? "lat" : "bw");
  if (std::system(("command -v " + program + " > /dev/null").c_str()) != 0) {
    return {.problem = program + " is not installed: it is in the package perftest"};
  }
  const std::string device = first_device();
  if (device.empty()) return {.problem = "there is no RDMA device"};
  std::string address;
  {
    const BaselineSocket free_port = listen_baseline(address, false);
  }
  std::string command = fmt::format("{} -F -d {} -s {} -p {}", program, device, options.memory_block,
                                    address.substr(address.rfind(':') + 1));
  if (latency) {
    command += fmt::format(" -n {}", latency_iterations);
  } else {
    // The rate counts between margins at the begin and the end, so that both sides are busy.
    const auto seconds = static_cast<unsigned>(std::max(std::ceil(options.seconds), 1.0));
    command += fmt::format(" -t {} -D {}", std::min(in_flight, in_flight_max), seconds);
  }
  const PerftestServer server(command, options.server_cpu);
  std::vector<double> numbers;
  for (unsigned attempt = 0; attempt < attempts_max && numbers.empty(); ++attempt) {
    std::this_thread::sleep_for(attempt_pause);
    numbers = run_client(command + " 127.0.0.1", options.memory_block);
  }
  if (numbers.empty()) return {.problem = program + " failed: try it by hand: " + command};
  PerftestMeasured measured;
  if (latency) {
    // Bytes, iterations, the least, the greatest, the typical time in us.
    if (numbers.size() < 5) return {.problem = "the output of " + program + " was not understood"};
    measured.typical_us = numbers[4];
    measured.gbit_per_s = static_cast<double>(options.memory_block) * 8 / (measured.typical_us * 1e3);
  } else {
    // Bytes, iterations, the peak and the average in MiB/s.
    measured.gbit_per_s = numbers[3] * 8 * 1.048576 / 1e3;
  }
  return measured;
}

}  // namespace hawser::bench
