// The command bench: the workloads A, B, C and F of YCSB against a running server.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "hawser/detail/log_linear.h"
#include "hawser/hawser.h"
#include "kv/client.h"
#include "kv/command.h"

namespace hawser::kv {
namespace {

using Latencies = detail::LogLinear<5, 40>;

struct BenchOptions {
  std::string connect = "127.0.0.1:6379";
  std::string workload = "c";
  std::string transport = "tcp";
  std::string reads = "direct";
  std::string distribution = "zipfian";
  std::string json;
  std::size_t value_bytes = 64;
  std::uint64_t keys = 100'000;
  double seconds = 5;
  unsigned in_flight = 32;
};

// Ranks by the distribution of Zipf with exponent 0.99, as YCSB computes them (Gray and others, 1994), spread over the
// keys by a hash; or uniform.
class KeyChooser {
 public:
  KeyChooser(std::uint64_t keys, bool zipfian) : keys_(keys), zipfian_(zipfian) {
    if (!zipfian) return;
    for (std::uint64_t i = 1; i <= keys; ++i) zeta_ += 1 / std::pow(static_cast<double>(i), exponent);
    const double zeta_of_two = 1 + std::pow(0.5, exponent);
    eta_ = (1 - std::pow(2.0 / static_cast<double>(keys), 1 - exponent)) / (1 - zeta_of_two / zeta_);
  }
  std::uint64_t next(Random& random) const {
    if (!zipfian_) return random.below(keys_);
    const double u = static_cast<double>(random.next() >> 11) * 0x1.0p-53;
    const double scaled = u * zeta_;
    double rank = 0;
    if (scaled >= 1 + std::pow(0.5, exponent)) {
      rank = static_cast<double>(keys_) * std::pow(eta_ * u - eta_ + 1, 1 / (1 - exponent));
    } else if (scaled >= 1) {
      rank = 1;
    }
    return Random(static_cast<std::uint64_t>(rank)).next() % keys_;
  }

 private:
  static constexpr double exponent = 0.99;
  const std::uint64_t keys_;
  const bool zipfian_;
  double zeta_ = 0;
  double eta_ = 0;
};

std::string key_name(std::uint64_t number) { return fmt::format("user{:012}", number); }

struct Measurement {
  const BenchOptions& options;
  KeyChooser chooser;
  double reads;  // Part of the operations.
  bool read_modify_write = false;
  std::string value;
  std::vector<std::uint64_t> counts = std::vector<std::uint64_t>(Latencies::buckets);
  std::uint64_t operations = 0;
  std::uint64_t failed = 0;
  std::optional<Error> error = {};
  Time end = {};
};

// Seconds of processor time that a process of this machine has used; nothing if it does not exist.
std::optional<double> processor_seconds(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string text;
  if (!std::getline(file, text) || text.rfind(')') == std::string::npos) return std::nullopt;
  std::vector<std::string> fields;
  std::size_t at = text.rfind(')') + 2;
  while (at < text.size() && fields.size() < 14) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    fields.push_back(text.substr(at, space - at));
    at = space + 1;
  }
  if (fields.size() < 13) return std::nullopt;
  return static_cast<double>(std::stoll(fields[11]) + std::stoll(fields[12])) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Asks the server for its process id, over the protocol of Redis. Empty if it does not answer.
std::string server_process(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.starts_with("unix:")) return {};
  addrinfo* found = nullptr;
  if (getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), nullptr, &found) != 0) return {};
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  std::string text;
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  constexpr std::string_view command = "INFO server\r\n";
  if (connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      send(fd, command.data(), command.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(command.size())) {
    char bytes[4096];
    const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got > 0) text.assign(bytes, static_cast<std::size_t>(got));
  }
  close(fd);
  freeaddrinfo(found);
  const std::size_t begin = text.find("process_id:");
  if (begin == std::string::npos) return {};
  return text.substr(begin + 11, text.find('\r', begin) - begin - 11);
}

Task<void> load_keys(Client& link, Measurement& run, std::uint64_t begin, std::uint64_t step) {
  KvClient client(link);
  for (std::uint64_t i = begin; i < run.options.keys && !run.error; i += step) {
    auto writing = client.set(key_name(i), run.value);
    Result<std::uint64_t> written = co_await std::move(writing);
    if (!written) run.error = std::move(written.error());
  }
}

Task<void> run_operations(Client& link, OneSidedReader* reader, Measurement& run, std::uint64_t seed) {
  KvClient client(link, reader);
  Random random(seed);
  Loop& here = *Loop::current();
  while (here.now() < run.end && !run.error) {
    const std::string name = key_name(run.chooser.next(random));
    const auto begin = std::chrono::steady_clock::now();
    const bool reads = random.chance(run.reads);
    if (reads || run.read_modify_write) {
      auto reading = client.get(name);
      Result<std::optional<Value>> value = co_await std::move(reading);
      if (!value) run.error = std::move(value.error());
      if (value && (!*value || (*value)->bytes.size() != run.value.size())) ++run.failed;
    }
    if (!reads && !run.error) {
      auto writing = client.set(name, run.value);
      Result<std::uint64_t> written = co_await std::move(writing);
      if (!written) run.error = std::move(written.error());
    }
    const auto elapsed = std::chrono::steady_clock::now() - begin;
    ++run.counts[Latencies::index_of(
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()))];
    ++run.operations;
  }
}

Task<void> show_progress(const Measurement& run) {
  constexpr Duration interval_max = std::chrono::seconds(1);
  Loop& here = *Loop::current();
  while (here.now() < run.end && !run.error) {
    const std::uint64_t before = run.operations;
    const Duration interval = std::min(interval_max, run.end - here.now());
    co_await here.sleep(interval);
    const double seconds = std::chrono::duration<double>(interval).count();
    fmt::print(stderr, "{:.0f} operations/s\n", static_cast<double>(run.operations - before) / seconds);
  }
}

Task<int> bench(const BenchOptions& options) {
  Measurement run{.options = options,
                  .chooser = KeyChooser(options.keys, options.distribution == "zipfian"),
                  .reads = options.workload == "c"   ? 1.0
                           : options.workload == "b" ? 0.95
                                                     : 0.5,
                  .read_modify_write = options.workload == "f",
                  .value = std::string(options.value_bytes, 'v')};
  ClientOptions client_options;
  if (options.transport == "rdma") client_options.transports.enable(rdma());
  client_options.transports.required = options.transport == "tcp" ? "stream" : options.transport;
  Client link(client_options);
  auto connecting = link.connect(options.connect);
  const Result<void> connected = co_await std::move(connecting);
  if (!connected) {
    fmt::print(stderr, "hawser-kv: {}\n", connected.error().text);
    co_return 1;
  }
  OneSidedReader reader(link);
  Scope scope;
  for (unsigned i = 0; i < options.in_flight; ++i) scope.spawn(load_keys(link, run, i, options.in_flight));
  co_await scope.join();
  const std::string process = server_process(options.connect);
  const std::optional<double> before = processor_seconds(process);
  const auto begin = std::chrono::steady_clock::now();
  run.end = Loop::current()->after(std::chrono::nanoseconds(static_cast<std::int64_t>(options.seconds * 1e9)));
  for (unsigned i = 0; i < options.in_flight; ++i)
    scope.spawn(run_operations(link, options.reads == "direct" ? &reader : nullptr, run, i + 1));
  scope.spawn(show_progress(run));
  co_await scope.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::optional<double> after = processor_seconds(process);
  if (run.error || run.operations == 0) {
    fmt::print(stderr, "hawser-kv: {}\n", run.error ? run.error->text : "no operation was completed");
    co_return 1;
  }
  const auto microseconds = [&](double fraction) {
    const std::size_t bucket = Latencies::bucket_of(run.counts, run.operations, fraction);
    return static_cast<double>(Latencies::middle_of(bucket)) / 1000;
  };
  nlohmann::json result = {{"workload", options.workload},
                           {"transport", link.transport()},
                           {"distribution", options.distribution},
                           {"value_bytes", options.value_bytes},
                           {"keys", options.keys},
                           {"in_flight", options.in_flight},
                           {"operations", run.operations},
                           {"failed", run.failed},
                           {"reads_without_calls", reader.counters().found},
                           {"ops_per_s", static_cast<double>(run.operations) / seconds},
                           {"p50_us", microseconds(0.5)},
                           {"p99_us", microseconds(0.99)},
                           {"server_cpu_s_per_million", nullptr}};
  if (before && after) {
    result["server_cpu_s_per_million"] = (*after - *before) * 1e6 / static_cast<double>(run.operations);
  }
  nlohmann::json histogram = nlohmann::json::array();
  for (std::size_t i = 0; i < run.counts.size(); ++i) {
    if (run.counts[i] == 0) continue;
    histogram.push_back({{"us", static_cast<double>(Latencies::middle_of(i)) / 1000}, {"count", run.counts[i]}});
  }
  fmt::print("{}\n", result.dump(2));
  result["histogram"] = std::move(histogram);
  if (!options.json.empty() && !(std::ofstream(options.json) << result.dump(2) << "\n")) {
    fmt::print(stderr, "hawser-kv: cannot write {}\n", options.json);
    co_return 1;
  }
  co_return run.failed == 0 ? 0 : 1;
}

}  // namespace

Run add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  command.add_option("--connect", options->connect, "Address of the server")->capture_default_str();
  command
      .add_option("--ycsb", options->workload,
                  "Workload: a (half writes), b (5 % writes), c (reads), f (half "
                  "read-modify-write)")
      ->check(CLI::IsMember({"a", "b", "c", "f"}))
      ->capture_default_str();
  command.add_option("--transport", options->transport, "Transport of the calls")
      ->check(CLI::IsMember({"tcp", "shm", "rdma"}))
      ->capture_default_str();
  command
      .add_option("--reads", options->reads,
                  "How values are read: direct (without calls where the transport allows it) or calls")
      ->check(CLI::IsMember({"direct", "calls"}))
      ->capture_default_str();
  command.add_option("--distribution", options->distribution, "Distribution of the keys: zipfian (0.99) or uniform")
      ->check(CLI::IsMember({"zipfian", "uniform"}))
      ->capture_default_str();
  command.add_option("--value", options->value_bytes, "Length of the values")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 26))
      ->capture_default_str();
  command.add_option("--keys", options->keys, "Number of keys")
      ->check(CLI::Range(2, 1'000'000'000))
      ->capture_default_str();
  command.add_option("--seconds", options->seconds, "Duration")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  command.add_option("--in-flight", options->in_flight, "Operations in flight")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--json", options->json, "File for the result with its histogram");
  return [options] { return sync_wait(bench(*options)); };
}

}  // namespace hawser::kv
