#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "bench/baseline/baseline_socket.h"
#include "bench/load/events.h"
#include "bench/run/system.h"
#include "process/program.h"

// Runs UCX's own benchmark at the sizes of the cells: the cost of active messages without RPC.
namespace hawser::bench {
namespace {

constexpr const char* program = "ucx_perftest";
constexpr unsigned attempts_max = 100;  // Attempts to connect, until the server of the next test listens.
constexpr std::chrono::milliseconds attempt_pause(20);
constexpr std::uint64_t iterations_few = 200;  // Short run, which shows how many iterations fit into the time.
constexpr std::uint64_t iterations_max = 1 << 28;

// Sets UCX_TLS for the transport, unless the environment has it.
void choose_transports(const std::string& transport) {
  if (transport == "tcp") setenv("UCX_TLS", "tcp", 0);
  if (transport == "shm") setenv("UCX_TLS", "shm,self", 0);
}

// Each server process of ucx_perftest serves one test and ends.
int serve(const Cell& cell, int descriptor) {
  choose_transports(cell.transport);
  std::string address;
  {
    const BaselineSocket free_port = listen_baseline(address, false);
  }
  const std::string port = address.substr(address.rfind(':') + 1);
  EventWriter(descriptor).write(Listening{address});
  for (;;) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      process::discard_output();
      execlp(program, program, "-p", port.c_str(), nullptr);
      _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

struct UcxPerftestResult {
  double half_trip_us = 0;  // Median of latency tests.
  double messages_per_s = 0;
};

std::optional<UcxPerftestResult> run_once(const std::string& address, const Cell& cell, std::uint64_t iterations) {
  const std::size_t colon = address.rfind(':');
  const std::string command =
      fmt::format("{} {} -p {} -t {} -s {} -n {} -w {} -f -v 2>&1", program, address.substr(0, colon),
                  address.substr(colon + 1), cell.concurrency == 1 ? "ucp_am_lat" : "ucp_am_bw", cell.size_bytes,
                  iterations, std::max<std::uint64_t>(iterations / 10, 10));
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return std::nullopt;
  std::optional<UcxPerftestResult> result;
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), output) != nullptr) {
    // Iterations; median, average and overall latency; bandwidth and messages a second, each average and overall.
    double median = 0;
    double rate = 0;
    if (std::sscanf(line.data(), "%*d,%lf,%*f,%*f,%*f,%*f,%*f,%lf", &median, &rate) == 2) {
      result = UcxPerftestResult{median, rate};
    }
  }
  return pclose(output) == 0 ? result : std::nullopt;
}

std::optional<UcxPerftestResult> run_test(const std::string& address, const Cell& cell, std::uint64_t iterations) {
  for (unsigned attempt = 0; attempt < attempts_max; ++attempt) {
    if (const std::optional<UcxPerftestResult> measured = run_once(address, cell, iterations)) return measured;
    std::this_thread::sleep_for(attempt_pause);
  }
  return std::nullopt;
}

int measure(const RunOptions& options, const std::string& address, const std::vector<Cell>& cells, int descriptor) {
  const EventWriter events(descriptor);
  choose_transports(cells.front().transport);
  events.write(Connected{{.poller = "its own", .wait = "busy_poll", .version = HAWSER_VERSION}, "its own", "ucx"});
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!events.write(CellBegun{i})) return 1;
    std::optional<UcxPerftestResult> measured = run_test(address, cells[i], iterations_few);
    if (measured && measured->messages_per_s > 0) {
      const double wanted = options.seconds * measured->messages_per_s;
      const auto iterations =
          static_cast<std::uint64_t>(std::clamp(wanted, double{iterations_few}, double{iterations_max}));
      measured = run_test(address, cells[i], iterations);
    }
    if (!measured) {
      events.write(Failed{"ucx_perftest failed: try it by hand, with the same UCX_TLS"});
      return 1;
    }
    // A round trip is two messages of the latency test.
    const double trips_per_s = cells[i].concurrency == 1 ? measured->messages_per_s / 2 : measured->messages_per_s;
    CellResult result{.cell = cells[i], .seconds = options.seconds, .calls_at_once = cells[i].concurrency};
    result.calls = static_cast<std::uint64_t>(trips_per_s * options.seconds);
    if (cells[i].concurrency == 1) result.p50_us = result.p90_us = 2 * measured->half_trip_us;
    events.write(result);
  }
  return 0;
}

}  // namespace

System ucx_perftest_system() {
  return {.name = "ucx",
          .serve = [](const RunOptions&, const Cell& cell, int descriptor) { return serve(cell, descriptor); },
          .measure = [](const RunOptions& options, const std::string& address, pid_t, const std::vector<Cell>& cells,
                        int descriptor) { return measure(options, address, cells, descriptor); }};
}

std::string missing_ucx_perftest(const RunOptions& options) {
  if (std::ranges::find(options.modes, Mode::connections) != options.modes.end()) {
    return "ucx_perftest has one connection: give --mode pipeline";
  }
  if (std::system("command -v ucx_perftest > /dev/null") == 0) return {};
  return "ucx_perftest is not there: install ucx-utils";
}

}  // namespace hawser::bench
