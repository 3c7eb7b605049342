// The command compare: hawser-kv beside redis-server and memcached, on this machine.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "kv/command.h"
#include "kv/text_load.h"
#include "kv/workload.h"
#include "process/child.h"

namespace hawser::kv {
namespace {

struct CompareOptions {
  std::vector<std::string> peers = {"redis", "memcached"};
  std::vector<std::string> workloads = {"c", "load"};
  std::vector<unsigned> in_flight = {1, 32};
  unsigned connections = 50;
  std::size_t value_bytes = 64;
  std::uint64_t keys = 100'000;
  double seconds = 1;
  unsigned rounds = 5;
  int server_cpu = 0;
  int client_cpu = 1;
  std::string json;
};

using Words = std::vector<std::string>;

// Becomes the program `words[0]` on processor `cpu`; -1: on any. Its output goes nowhere.
int become(Words words, int cpu) {
  if (cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
      throw std::runtime_error(fmt::format("cannot run at processor {}: {}", cpu, std::strerror(errno)));
    }
  }
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  throw std::runtime_error(fmt::format("cannot run {}: {}", words[0], std::strerror(errno)));
}

bool installed(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::string folders = path == nullptr ? "" : path;
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    if (access((folders.substr(0, end) + "/" + program).c_str(), X_OK) == 0) return true;
    folders.erase(0, std::min(end + 1, folders.size()));
  }
  return false;
}

// A server at a Unix socket or a port of the loopback, whose state is lost when it ends.
struct Subject {
  std::string name;
  std::string protocol;
  std::string address;
  Words server;
};

const std::string self = "/proc/self/exe";

// Ports of the loopback that nobody else is likely to use. Each server has one, and a failure to listen ends the run.
std::string port_of(std::size_t index) {
  return std::to_string(27'411 + index + static_cast<unsigned>(getpid()) % 1000 * 4);
}

std::vector<Subject> subjects_of(const CompareOptions& options, const std::string& folder) {
  std::vector<Subject> subjects;
  const std::string ours = "127.0.0.1:" + port_of(0);
  subjects.push_back({"hawser-kv", "redis", ours, {self, "serve", "--listen", ours, "--memory", "1G", "--index", "0"}});
  for (const std::string& peer : options.peers) {
    const std::string program = peer == "redis" ? "redis-server" : peer;
    if (!installed(program)) {
      fmt::print(stderr, "hawser-kv: {} is not installed, so it is not measured\n", program);
      continue;
    }
    const std::string port = port_of(subjects.size());
    Words words = {program, "--port", port, "--save", "", "--appendonly", "no", "--dir", folder};
    if (peer == "memcached") {
      words = {program, "-p", port, "-l", "127.0.0.1", "-m", "1024", "-t", "1", "-c", "8192"};
      if (geteuid() == 0) words.insert(words.end(), {"-u", "root"});
    }
    subjects.push_back({program, peer, "127.0.0.1:" + port, std::move(words)});
  }
  return subjects;
}

struct ComparedCell {
  std::string workload;
  unsigned in_flight;
};

// Measures one cell of one server by the command bench, in a process of its own.
nlohmann::json measure(const CompareOptions& options, const Subject& subject, const ComparedCell& cell,
                       const std::string& file) {
  const Words words = {self,
                       "bench",
                       "--protocol",
                       subject.protocol,
                       "--connect",
                       subject.address,
                       "--ycsb",
                       cell.workload,
                       "--in-flight",
                       std::to_string(cell.in_flight),
                       "--connections",
                       std::to_string(options.connections),
                       "--value",
                       std::to_string(options.value_bytes),
                       "--keys",
                       std::to_string(options.keys),
                       "--seconds",
                       std::to_string(options.seconds),
                       "--json",
                       file};
  process::Child client("kv-bench", [&](int) { return become(words, options.client_cpu); });
  constexpr double patience_s = 120;
  if (!client.wait(options.seconds + patience_s) || !client.succeeded()) {
    client.end();
    throw std::runtime_error(fmt::format("the measurement of {} ended with {}", subject.name, client.how_it_ended()));
  }
  return nlohmann::json::parse(std::ifstream(file));
}

void wait_until_ready(const Subject& subject, process::Child& server) {
  constexpr auto patience = std::chrono::seconds(30);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (server_process(subject.address, subject.protocol == "memcached") != std::to_string(server.pid())) {
    if (server.wait(0.02))
      throw std::runtime_error(fmt::format("{} ended with {}", subject.name, server.how_it_ended()));
    if (std::chrono::steady_clock::now() > until) throw std::runtime_error(subject.name + " does not answer");
  }
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double median_of(const std::vector<nlohmann::json>& runs, const char* field) {
  std::vector<double> values;
  for (const nlohmann::json& run : runs) {
    if (run.at(field).is_number()) values.push_back(run.at(field).get<double>());
  }
  return values.empty() ? 0 : median(std::move(values));
}

int compare(const CompareOptions& options) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "result.json";
  const std::vector<Subject> subjects = subjects_of(options, folder.path());
  std::vector<std::unique_ptr<process::Child>> servers;
  for (const Subject& subject : subjects) {
    servers.push_back(std::make_unique<process::Child>(
        subject.name, [&](int) { return become(subject.server, options.server_cpu); }));
    wait_until_ready(subject, *servers.back());
  }
  nlohmann::json result = nlohmann::json::array();
  fmt::print("Medians of {} interleaved runs of {} s, {} connections, {} keys of {} bytes, zipfian\n\n", options.rounds,
             options.seconds, options.connections, options.keys, options.value_bytes);
  fmt::print("{:>8} {:>8}  {:<13} {:>12} {:>7} {:>10} {:>10} {:>16}\n", "workload", "pipeline", "server",
             "operations/s", "ratio", "p50 us", "p99 us", "server cpu s/M");
  for (const std::string& workload : options.workloads) {
    for (const unsigned in_flight : options.in_flight) {
      const ComparedCell cell{workload, in_flight};
      std::vector<std::vector<nlohmann::json>> runs(subjects.size());
      for (unsigned round = 0; round < options.rounds; ++round) {
        for (std::size_t i = 0; i < subjects.size(); ++i) runs[i].push_back(measure(options, subjects[i], cell, file));
      }
      const double ours = median_of(runs[0], "ops_per_s");
      for (std::size_t i = 0; i < subjects.size(); ++i) {
        const double rate = median_of(runs[i], "ops_per_s");
        nlohmann::json row = {{"workload", workload},
                              {"in_flight", in_flight},
                              {"server", subjects[i].name},
                              {"ops_per_s", rate},
                              {"hawser_ratio", ours / rate},
                              {"p50_us", median_of(runs[i], "p50_us")},
                              {"p99_us", median_of(runs[i], "p99_us")},
                              {"server_cpu_s_per_million", median_of(runs[i], "server_cpu_s_per_million")}};
        fmt::print("{:>8} {:>8}  {:<13} {:>12.0f} {:>7} {:>10.1f} {:>10.1f} {:>16.2f}\n", workload, in_flight,
                   subjects[i].name, rate, i == 0 ? "" : fmt::format("{:.2f}", ours / rate),
                   row["p50_us"].get<double>(), row["p99_us"].get<double>(),
                   row["server_cpu_s_per_million"].get<double>());
        std::fflush(stdout);
        result.push_back(std::move(row));
      }
    }
  }
  fmt::print("\nratio: operations/s of hawser-kv divided by those of the server\n");
  if (!options.json.empty() && !(std::ofstream(options.json) << result.dump(2) << "\n")) {
    fmt::print(stderr, "hawser-kv: cannot write {}\n", options.json);
    return 1;
  }
  return 0;
}

}  // namespace

Run add_compare(CLI::App& command) {
  auto options = std::make_shared<CompareOptions>();
  command.add_option("--peers", options->peers, "Servers to measure beside this one")
      ->delimiter(',')
      ->check(CLI::IsMember({"redis", "memcached"}))
      ->capture_default_str();
  command.add_option("--ycsb", options->workloads, "Workloads, as in bench")
      ->delimiter(',')
      ->check(CLI::IsMember({"a", "b", "c", "f", "load"}))
      ->capture_default_str();
  command.add_option("--in-flight", options->in_flight, "Operations in flight on each connection")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--connections", options->connections, "Connections")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--value", options->value_bytes, "Length of the values")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 20))
      ->capture_default_str();
  command.add_option("--keys", options->keys, "Number of keys")->check(CLI::Range(2, 2'000'000))->capture_default_str();
  command.add_option("--seconds", options->seconds, "Duration of a run")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command.add_option("--rounds", options->rounds, "Runs of each server in each cell")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--server-cpu", options->server_cpu, "Processor of the servers; -1: any")->capture_default_str();
  command.add_option("--client-cpu", options->client_cpu, "Processor of the clients; -1: any")->capture_default_str();
  command.add_option("--json", options->json, "File for the medians");
  return [options] {
    try {
      return compare(*options);
    } catch (const std::exception& error) {
      fmt::print(stderr, "hawser-kv: {}\n", error.what());
      return 1;
    }
  };
}

}  // namespace hawser::kv
