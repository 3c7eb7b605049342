// The command bench: the workloads A, B, C and F of YCSB against a running server.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "hawser/hawser.h"
#include "hawser/kv.h"
#include "kv/command.h"
#include "kv/text_load.h"
#include "kv/workload.h"

namespace hawser::kv {
namespace {

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

Task<void> load_keys(KvClient& client, Measurement& run, std::uint64_t begin, std::uint64_t step) {
  for (std::uint64_t i = begin; i < run.options.keys && !run.error; i += step) {
    Result<std::uint64_t> written = co_await client.set(key_name(i), run.value);
    if (!written) run.error = std::move(written.error());
  }
}

// `end`: when no further operation begins.
Task<void> run_operations(KvClient& client, Measurement& run, Time end, std::uint64_t seed) {
  Random random(seed);
  Loop& here = *Loop::current();
  while (here.now() < end && !run.error) {
    const std::string name = key_name(run.chooser.next(random));
    const auto begin = std::chrono::steady_clock::now();
    const bool reads = random.chance(run.reads);
    if (reads || run.read_modify_write) {
      Result<std::optional<Value>> value = co_await client.get(name);
      if (!value) run.error = std::move(value.error());
      if (value && (!*value || (*value)->bytes.size() != run.value.size())) ++run.failed;
    }
    if (!reads && !run.error) {
      Result<std::uint64_t> written = co_await client.set(name, run.value);
      if (!written) run.error = std::move(written.error());
    }
    const auto elapsed = std::chrono::steady_clock::now() - begin;
    run.count(static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()));
  }
}

Task<void> show_progress(const Measurement& run, Time end) {
  constexpr Duration interval_max = std::chrono::seconds(1);
  Loop& here = *Loop::current();
  while (here.now() < end && !run.error) {
    const std::uint64_t before = run.operations;
    const Duration interval = std::min(interval_max, end - here.now());
    co_await here.sleep(interval);
    const double seconds = std::chrono::duration<double>(interval).count();
    fmt::print(stderr, "{:.0f} operations/s\n", static_cast<double>(run.operations - before) / seconds);
  }
}

// The duration of a run, and the processor time of the server in it.
class Stopwatch {
 public:
  explicit Stopwatch(std::string process)
      : process_(std::move(process)), before_(processor_seconds(process_)), begin_(std::chrono::steady_clock::now()) {}
  void stop() {
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const std::optional<double> after = processor_seconds(process_);
    if (before_ && after) processor_seconds_ = *after - *before_;
  }
  double seconds() const { return seconds_; }
  std::optional<double> processor() const { return processor_seconds_; }

 private:
  std::string process_;
  std::optional<double> before_;
  std::chrono::steady_clock::time_point begin_;
  double seconds_ = 0;
  std::optional<double> processor_seconds_;
};

// Prints the result as JSON and writes it with its histogram. Returns the exit status.
int report(const Measurement& run, const Stopwatch& time, const nlohmann::json& facts) {
  if (run.error || run.operations == 0) {
    fmt::print(stderr, "hawser-kv: {}\n", run.error ? run.error->text : "no operation was completed");
    return 1;
  }
  const auto microseconds = [&](double fraction) {
    const std::size_t bucket = Latencies::bucket_of(run.counts, run.operations, fraction);
    return static_cast<double>(Latencies::middle_of(bucket)) / 1000;
  };
  const BenchOptions& options = run.options;
  nlohmann::json result = {{"workload", options.workload},
                           {"protocol", options.protocol},
                           {"distribution", options.distribution},
                           {"value_bytes", options.value_bytes},
                           {"keys", options.keys},
                           {"in_flight", options.in_flight},
                           {"operations", run.operations},
                           {"failed", run.failed},
                           {"ops_per_s", static_cast<double>(run.operations) / time.seconds()},
                           {"p50_us", microseconds(0.5)},
                           {"p99_us", microseconds(0.99)},
                           {"server_cpu_s_per_million", nullptr}};
  result.update(facts);
  if (time.processor()) {
    result["server_cpu_s_per_million"] = *time.processor() * 1e6 / static_cast<double>(run.operations);
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
    return 1;
  }
  return run.failed == 0 ? 0 : 1;
}

int print_error(const Error& error) {
  fmt::print(stderr, "hawser-kv: {}\n", error.text);
  return 1;
}

Task<int> bench_by_calls(const BenchOptions& options) {
  Measurement run(options);
  Result<ClientOptions> given = client_options(options.server);
  if (!given) co_return print_error(given.error());
  ClientOptions& client_options = *given;
  if (options.transport == "rdma") client_options.transports.enable(rdma());
  client_options.transports.required = options.transport == "tcp" ? "stream" : options.transport;
  Client link(client_options);
  const Result<void> connected = co_await link.connect(options.server.connect);
  if (!connected) co_return print_error(connected.error());
  KvClient client(link, options.reads == "direct" ? ReadPolicy::direct : ReadPolicy::calls);
  Scope scope;
  for (unsigned i = 0; i < options.in_flight; ++i) scope.spawn(load_keys(client, run, i, options.in_flight));
  co_await scope.join();
  Stopwatch time(options.server.security != nullptr ? std::string()
                                                    : server_process(options.server.connect, false, options.password));
  const Time end = Loop::current()->after(std::chrono::nanoseconds(static_cast<std::int64_t>(options.seconds * 1e9)));
  for (unsigned i = 0; i < options.in_flight; ++i) scope.spawn(run_operations(client, run, end, i + 1));
  scope.spawn(show_progress(run, end));
  co_await scope.join();
  time.stop();
  co_return report(run, time,
                   {{"transport", link.transport()},
                    {"reads_without_calls", client.direct_reads()},
                    {"calls_reason", client.calls_reason()}});
}

int bench_by_text(const BenchOptions& options) {
  Measurement run(options);
  Result<void> outcome = load_keys_by_text(run);
  Stopwatch time(server_process(options.server.connect, options.protocol == "memcached", options.password));
  if (outcome) outcome = run_by_text(run);
  time.stop();
  if (!outcome) run.error = std::move(outcome.error());
  return report(run, time, {{"transport", "stream"}, {"connections", options.connections}});
}

}  // namespace

Run add_bench(CLI::App& command) {
  auto options = std::make_shared<BenchOptions>();
  add_client_options(command, options->server);
  command
      .add_option("--protocol", options->protocol, "Protocol: hawser (calls), redis, or memcached (of another server)")
      ->check(CLI::IsMember({"hawser", "redis", "memcached"}))
      ->capture_default_str();
  command
      .add_option("--ycsb", options->workload,
                  "Workload: a (half writes), b (5 % writes), c (reads), f (half "
                  "read-modify-write), load (writes)")
      ->check(CLI::IsMember({"a", "b", "c", "f", "load"}))
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
  command
      .add_option("--in-flight", options->in_flight,
                  "Operations in flight; with redis and memcached, on each connection")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--connections", options->connections, "Connections, with redis and memcached")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--json", options->json, "File for the result with its histogram");
  return [options] {
    if (!options->server.password_file.empty()) {
      Result<std::string> password = read_password(options->server.password_file);
      if (!password) return print_error(password.error());
      options->password = std::move(*password);
    }
    if (options->protocol == "hawser") return sync_wait(bench_by_calls(*options));
    if (options->server.security == nullptr) return bench_by_text(*options);
    fmt::print(stderr, "hawser-kv: bench has TLS with --protocol hawser only\n");
    return wrong_options_status;
  };
}

}  // namespace hawser::kv
