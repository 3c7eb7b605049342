#include "bench/memory/memory_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "bench/baseline/baseline_socket.h"
#include "bench/load/processors.h"
#include "bench/load/size.h"
#include "bench/load/transport_choice.h"
#include "bench/memory/memory_copy.h"
#include "bench/memory/memory_owner.h"
#include "bench/memory/memory_perftest.h"
#include "bench/memory/memory_service.h"
#include "bench/results/report.h"
#include "bench/run/lifecycle.h"
#include "hawser/hawser.h"
#include "hawser/memory.h"

namespace hawser::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t region_bytes_least = std::size_t{8} << 20;
constexpr std::size_t region_bytes_most = std::size_t{4} << 30;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double percentile(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::size_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double rate_of(double bytes, double seconds) { return seconds > 0 ? bytes * 8 / seconds / 1e9 : 0; }

// The result of one measurement with the library.
struct MemoryMeasured {
  std::string problem;
  double seconds = 0;
  std::uint64_t bytes = 0;
  std::uint64_t batches = 0;
  std::size_t runs = 0;  // Runs of one batch, after contiguous blocks were merged.
  std::vector<double> post_us;
  std::vector<double> batch_us;
  std::vector<double> idle_call_us;
  std::vector<double> busy_call_us;
  double idle_calls_per_s = 0;
  double busy_calls_per_s = 0;
  double alone_seconds = 0;  // Time of transfers without calls beside them.
  std::uint64_t alone_bytes = 0;
  bool one_sided = false;
  bool validated = false;
  std::vector<double> path_gbit_per_s;  // Rate of each path.
  // Results of perftest, which reports no counts.
  double gbit_per_s = 0;
  double typical_us = 0;

  double rate() const { return gbit_per_s != 0 ? gbit_per_s : rate_of(static_cast<double>(bytes), seconds); }
};

struct MemoryWork {
  const RunOptions& options;
  RemoteMemory remote;
  RemoteRegion region;
  std::size_t base;                    // The part of the region that this path accesses begins here.
  std::vector<TransferBatch> batches;  // One for each operation in flight.
  MemoryMeasured& measured;
  RemoteMemory small;         // Makes the reads beside the transfers,
  MutableBytes small_memory;  // into this memory.
  bool counting = false;
  bool stop = false;
};

Task<void> keep_transferring(MemoryWork& work, const TransferBatch& batch) {
  const bool reads = work.options.memory_op == "read";
  while (!work.stop && work.measured.problem.empty()) {
    const auto begin = Clock::now();
    // The task begins when it is awaited; a task of its own measures how long that takes until it waits.
    std::optional<Result<void>> outcome;
    Scope scope;
    scope.spawn([](Task<Result<void>> task, std::optional<Result<void>>& out) -> Task<void> {
      out = co_await std::move(task);
    }(reads ? work.remote.read(work.region, batch) : work.remote.write(work.region, batch), outcome));
    const double posted = seconds_since(begin) * 1e6;
    co_await scope.join();
    if (!*outcome) {
      work.measured.problem = outcome->error().describe();
      co_return;
    }
    if (!work.counting) continue;
    work.measured.bytes += batch.bytes();
    ++work.measured.batches;
    work.measured.post_us.push_back(posted);
    work.measured.batch_us.push_back(seconds_since(begin) * 1e6);
  }
}

// Calls of 128 bytes, or reads of 64 bytes, until `stop`. Adds the time of each one to `times`.
Task<void> keep_calling(Client& client, MemoryWork& work, const bool& stop, std::vector<double>& times) {
  const std::string text(128, 'x');
  while (!stop) {
    const auto begin = Clock::now();
    if (work.options.memory_small_reads) {
      const Result<void> done = co_await work.small.read(work.region, 0, work.small_memory);
      if (!done) work.measured.problem = "a small read: " + done.error().describe();
      if (!done) co_return;
    } else {
      const Result<std::string> reply = co_await client.call<memory_echo>(text);
      if (!reply) work.measured.problem = "a call: " + reply.error().describe();
      if (!reply) co_return;
    }
    times.push_back(seconds_since(begin) * 1e6);
    co_await Loop::current()->sleep(std::chrono::microseconds(50));
  }
}

Task<void> pause_for(double seconds) {
  co_await Loop::current()->sleep(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
}

// The blocks of the batches: contiguous, or every other block in random order.
void prepare(MemoryWork& work, MutableBytes memory) {
  const std::size_t block = work.options.memory_block;
  const std::size_t count = work.options.memory_batch;
  const std::size_t stride = work.options.memory_scattered ? 2 * block : block;
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (work.options.memory_scattered) std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  for (unsigned i = 0; i < work.options.memory_depth; ++i) {
    TransferBatch& batch = work.batches.emplace_back();
    batch.reserve(count);
    const std::size_t base = i * count * stride;
    for (std::size_t k = 0; k < count; ++k) {
      batch.add(memory.subspan(base + order[k] * stride, block), work.base + base + order[k] * stride);
    }
  }
}

// Transfers for `seconds`, after a warm-up of a quarter of that, with calls beside them if `client` is not null.
Task<void> measure_transfers(MemoryWork& work, double seconds, Client* client = nullptr) {
  work.stop = false;
  Scope scope;
  for (const TransferBatch& batch : work.batches) scope.spawn(keep_transferring(work, batch));
  std::vector<double> times;
  if (client != nullptr) scope.spawn(keep_calling(*client, work, work.stop, times));
  co_await pause_for(seconds / 4);
  times.clear();
  work.counting = true;
  const auto begin = Clock::now();
  co_await pause_for(seconds);
  work.counting = false;
  work.measured.seconds += seconds_since(begin);
  std::vector<double>& all = work.measured.busy_call_us;
  all.insert(all.end(), times.begin(), times.end());
  work.stop = true;
  co_await scope.join();
}

// Calls alone, transfers alone and both, in several rounds, so that a change of the machine's speed affects all alike.
Task<void> measure_rounds(MemoryWork& work, Client& client) {
  constexpr unsigned rounds = 4;
  MemoryMeasured& measured = work.measured;
  const double seconds = work.options.seconds / rounds;
  double idle_seconds = 0;
  for (unsigned round = 0; round < rounds && measured.problem.empty(); ++round) {
    bool stop = false;
    Scope calls;
    calls.spawn(keep_calling(client, work, stop, measured.idle_call_us));
    const auto begin = Clock::now();
    co_await pause_for(seconds);
    idle_seconds += seconds_since(begin);
    stop = true;
    co_await calls.join();

    // The results of transfers alone are kept apart.
    const std::uint64_t bytes = measured.bytes;
    const double counted = measured.seconds;
    const std::uint64_t batches = measured.batches;
    co_await measure_transfers(work, seconds);
    measured.alone_bytes += std::exchange(measured.bytes, bytes) - bytes;
    measured.alone_seconds += std::exchange(measured.seconds, counted) - counted;
    measured.batches = batches;

    co_await measure_transfers(work, seconds, &client);
  }
  measured.idle_calls_per_s = static_cast<double>(measured.idle_call_us.size()) / idle_seconds;
  measured.busy_calls_per_s = static_cast<double>(measured.busy_call_us.size()) / std::max(measured.seconds, 1e-9);
}

bool matches(Bytes memory, std::size_t base) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (std::to_integer<unsigned char>(memory[i]) != memory_pattern(base + i)) return false;
  }
  return true;
}

// A connection that accesses `bytes` of an owner's region.
struct Path {
  const RunOptions& options;
  std::string address;
  std::size_t bytes;
  std::size_t base;  // The part of the region begins here.
  MemoryMeasured& measured;
  std::optional<Client> client = {};
  std::optional<Client> second = {};  // For the transfers, with RunOptions::memory_separate.
  std::optional<RegisteredBuffer> buffer = {};
  std::optional<RegisteredBuffer> small = {};
  std::optional<MemoryWork> work = {};
};

Task<Result<void>> connect(std::optional<Client>& client, const Path& path) {
  ClientOptions with;
  with.transports = client_transports(path.options.transports.front());
  co_return co_await client.emplace(*Loop::current(), with).connect(path.address);
}

Task<void> open_path(Path& path) {
  const RunOptions& options = path.options;
  MemoryMeasured& measured = path.measured;
  Result<void> connected = co_await connect(path.client, path);
  if (connected && options.memory_separate) {
    connected = co_await connect(path.second, path);
  }
  if (!connected) {
    measured.problem = connected.error().describe();
    co_return;
  }
  Client& transfers = path.second ? *path.second : *path.client;
  const Result<RemoteRegion> region = co_await path.client->call<&MemoryService::region>();
  Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(transfers, path.bytes);
  Result<RegisteredBuffer> small = RegisteredBuffer::allocate(*path.client, 4096);
  if (!region || !buffer || !small) {
    measured.problem = (!region ? region.error() : !buffer ? buffer.error() : small.error()).describe();
    co_return;
  }
  path.buffer.emplace(std::move(*buffer));
  path.small.emplace(std::move(*small));
  const MutableBytes memory = path.buffer->memory().first(path.bytes);
  const TransferPriority priority = options.memory_bulk ? TransferPriority::bulk : TransferPriority::interactive;
  path.work.emplace(MemoryWork{.options = options,
                               .remote = RemoteMemory(transfers, priority),
                               .region = *region,
                               .base = path.base,
                               .batches = {},
                               .measured = measured,
                               .small = RemoteMemory(*path.client),
                               .small_memory = path.small->memory().first(64)});
  measured.one_sided = path.work->remote.capabilities().one_sided;
  if (options.memory_op != "read") {
    for (std::size_t i = 0; i < path.bytes; ++i) memory[i] = static_cast<std::byte>(memory_pattern(path.base + i));
  }
  prepare(*path.work, memory);
  measured.runs = path.work->batches.front().runs().size();
}

Task<void> measure_path(Path& path) {
  auto running = path.options.memory_calls ? measure_rounds(*path.work, *path.client)
                                           : measure_transfers(*path.work, path.options.seconds);
  co_await std::move(running);
}

// Validates every byte: what was written is read back, and what was read is compared with the pattern.
Task<void> validate_path(Path& path) {
  MemoryMeasured& measured = path.measured;
  if (!measured.problem.empty()) co_return;
  const MutableBytes memory = path.buffer->memory().first(path.bytes);
  std::memset(memory.data(), 0, memory.size());
  const Result<void> read = co_await path.work->remote.read(path.work->region, path.base, memory, {.checksum = true});
  measured.validated = read && matches(memory, path.base);
  if (!measured.validated) measured.problem = read ? "the data is wrong" : read.error().describe();
}

// Measures all paths at the same time: measured[i] is that of the path from client i, modulo the number of clients, to
// owner i, modulo the number of owners. Each path has `bytes` of its owner's region to itself.
Task<void> measure_library(const RunOptions& options, const std::vector<std::string>& owners, std::size_t bytes,
                           std::vector<MemoryMeasured>& measured) {
  std::vector<std::unique_ptr<Path>> paths;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    paths.push_back(std::unique_ptr<Path>(new Path{.options = options,
                                                   .address = owners[i % owners.size()],
                                                   .bytes = bytes,
                                                   .base = i / owners.size() * bytes,
                                                   .measured = measured[i]}));
  }
  for (Task<void> (*const step)(Path&) : {open_path, measure_path, validate_path}) {
    Scope scope;
    for (const std::unique_ptr<Path>& path : paths) scope.spawn(step(*path));
    co_await scope.join();
    for (const MemoryMeasured& one : measured) {
      if (!one.problem.empty()) co_return;
    }
  }
}

// The results of all paths as one, with the rate of each.
MemoryMeasured sum_of(std::vector<MemoryMeasured>& paths) {
  MemoryMeasured sum = std::move(paths.front());
  sum.path_gbit_per_s.push_back(rate_of(static_cast<double>(sum.bytes), sum.seconds));
  for (std::size_t i = 1; i < paths.size(); ++i) {
    MemoryMeasured& one = paths[i];
    sum.path_gbit_per_s.push_back(rate_of(static_cast<double>(one.bytes), one.seconds));
    if (sum.problem.empty()) sum.problem = one.problem;
    sum.seconds = std::max(sum.seconds, one.seconds);
    sum.bytes += one.bytes;
    sum.batches += one.batches;
    sum.post_us.insert(sum.post_us.end(), one.post_us.begin(), one.post_us.end());
    sum.batch_us.insert(sum.batch_us.end(), one.batch_us.begin(), one.batch_us.end());
    sum.validated = sum.validated && one.validated;
  }
  return sum;
}

// Sends blocks over a bare socket, as many in flight as the batches have.
MemoryMeasured measure_sockets(const RunOptions& options, std::size_t bytes) {
  MemoryMeasured measured;
  const MemoryOwner owner(options, bytes, true);
  if (owner.address().empty()) {
    measured.problem = "the process with the bare socket did not start";
    return measured;
  }
  const std::size_t block = options.memory_block;
  const BaselineSocket socket = connect_baseline(owner.address(), {.size_bytes = block, .connections = 1, .ack = 1});
  std::vector<std::byte> memory(bytes);
  const std::size_t most = std::max<std::size_t>(options.memory_batch * options.memory_depth, 1);
  std::uint64_t sent = 0;
  std::uint64_t answered = 0;
  std::size_t offset = 0;
  std::uint64_t counted_from = 0;
  const auto start = Clock::now();
  auto begin = start;
  for (bool counting = false;;) {
    const bool may_send = sent - answered < most;
    bool sent_some = false;
    if (may_send) {
      const ssize_t size = send(socket.descriptor(), memory.data() + sent % most * block + offset, block - offset,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
      sent_some = size > 0;
      if (size > 0) offset += static_cast<std::size_t>(size);
      if (offset == block) {
        offset = 0;
        ++sent;
      }
    }
    char scrap[256];
    const ssize_t got = recv(socket.descriptor(), scrap, sizeof scrap, MSG_DONTWAIT);
    if (got > 0) answered += static_cast<std::uint64_t>(got);
    if (got == 0) break;
    if (!sent_some && got < 0) {
      pollfd one{socket.descriptor(), static_cast<short>(may_send ? POLLIN | POLLOUT : POLLIN), 0};
      static_cast<void>(poll(&one, 1, -1));
    }
    if (!counting && seconds_since(start) > options.seconds / 4) {
      counting = true;
      counted_from = answered;
      begin = Clock::now();
    }
    if (counting && seconds_since(begin) > options.seconds) break;
  }
  measured.seconds = seconds_since(begin);
  measured.batches = answered - counted_from;
  measured.bytes = measured.batches * block;
  return measured;
}

json cell_of(const RunOptions& options, const char* system, MemoryMeasured& measured) {
  json cell = {{"system", system},
               {"op", options.memory_op},
               {"transport", options.transports.front()},
               {"block_bytes", options.memory_block},
               {"batch", options.memory_batch},
               {"scattered", options.memory_scattered},
               {"depth", options.memory_depth},
               {"priority", options.memory_bulk ? "bulk" : "interactive"},
               {"seconds", measured.seconds},
               {"batches", measured.batches},
               {"gbit_per_s", measured.rate()}};
  if (measured.typical_us != 0) cell["batch_p50_us"] = measured.typical_us;
  if (std::string_view(system) != "hawser") return cell;
  cell["post_us"] = percentile(measured.post_us, 0.5);
  cell["post_p99_us"] = percentile(measured.post_us, 0.99);
  cell["batch_p50_us"] = percentile(measured.batch_us, 0.5);
  cell["batch_p99_us"] = percentile(measured.batch_us, 0.99);
  cell["work_requests"] = measured.runs;
  cell["one_sided"] = measured.one_sided;
  cell["validated"] = measured.validated;
  cell["clients"] = options.memory_clients;
  cell["owners"] = options.memory_owners;
  cell["path_gbit_per_s"] = measured.path_gbit_per_s;
  if (options.memory_calls) {
    cell["calls_idle_per_s"] = measured.idle_calls_per_s;
    cell["calls_busy_per_s"] = measured.busy_calls_per_s;
    cell["alone_gbit_per_s"] = rate_of(static_cast<double>(measured.alone_bytes), measured.alone_seconds);
    cell["call_idle_p50_us"] = percentile(measured.idle_call_us, 0.5);
    cell["call_idle_p99_us"] = percentile(measured.idle_call_us, 0.99);
    cell["call_busy_p50_us"] = percentile(measured.busy_call_us, 0.5);
    cell["call_busy_p99_us"] = percentile(measured.busy_call_us, 0.99);
  }
  return cell;
}

// A process that began later has a copy of the descriptors that keep the earlier ones alive, so it ends first.
struct Owners {
  Owners() = default;
  Owners(const Owners&) = delete;
  Owners& operator=(const Owners&) = delete;
  ~Owners() {
    while (!all.empty()) all.pop_back();
  }
  std::deque<MemoryOwner> all;
};

// On a thread of its own, so that the process of a bare socket is not pinned to the client's processor.
template <class Work>
void run_pinned(const RunOptions& options, const Work& work) {
  std::thread([&] {
    if (options.client_cpu && *options.client_cpu >= 0) static_cast<void>(pin_to(*options.client_cpu));
    work();
  }).join();
}

// Over `path_count` paths, each to a region of `bytes`. Nothing if an owner did not start and has printed why.
std::optional<MemoryMeasured> measure_paths(const RunOptions& options, std::size_t bytes, std::size_t path_count) {
  Owners owners;
  std::vector<std::string> addresses;
  for (unsigned i = 0; i < options.memory_owners; ++i) {
    owners.all.emplace_back(options, bytes * (path_count / options.memory_owners), false);
    addresses.push_back(owners.all.back().address());
    if (addresses.back().empty()) return std::nullopt;
  }
  std::vector<MemoryMeasured> paths(path_count);
  run_pinned(options, [&] {
    Loop loop(options.loop(options.waits.front()));
    loop.run(measure_library(options, addresses, bytes, paths));
  });
  return sum_of(paths);
}

struct Baseline {
  const char* name;
  MemoryMeasured measured;
};

Baseline measure_baseline(const RunOptions& options) {
  const std::string& transport = options.transports.front();
  const bool stream = transport == "tcp" || transport == "unix";
  const bool device = transport == "rdma";
  Baseline base{.name = stream ? "sockets" : device ? "perftest" : "memcpy", .measured = {}};
  // The same blocks as those of the batches, so that the same caches hold them.
  const std::size_t touched = options.memory_block * options.memory_batch * options.memory_depth;
  run_pinned(options, [&] {
    MemoryMeasured& measured = base.measured;
    if (stream) {
      measured = measure_sockets(options, touched);
    } else if (device) {
      const PerftestMeasured by_perftest = measure_perftest(options);
      measured.problem = by_perftest.problem;
      measured.gbit_per_s = by_perftest.gbit_per_s;
      measured.typical_us = by_perftest.typical_us;
    } else {
      const CopyMeasured copied = measure_copies(options, touched);
      measured.seconds = copied.seconds;
      measured.bytes = copied.bytes;
    }
  });
  return base;
}

// `paths`: the rate of each path, in Gbit/s.
void print_cell(const RunOptions& options, const json& cell, const std::vector<double>& paths) {
  fmt::print("{:<8} {} {} {}x{}{}: {:.1f} Gbit/s", cell["system"].get<std::string>(),
             cell["transport"].get<std::string>(), cell["op"].get<std::string>(), format_size(options.memory_block),
             options.memory_batch, options.memory_scattered ? " scattered" : "", cell["gbit_per_s"].get<double>());
  if (paths.size() > 1 && cell.contains("path_gbit_per_s")) {
    const auto [least, most] = std::minmax_element(paths.begin(), paths.end());
    fmt::print(" over {} paths ({} clients, {} owners), {:.2f} to {:.2f} each", paths.size(), options.memory_clients,
               options.memory_owners, *least, *most);
  }
  if (!cell.contains("post_us") && cell.contains("batch_p50_us")) {
    fmt::print(", a block {:.0f} us", cell["batch_p50_us"].get<double>());
  }
  if (cell.contains("post_us")) {
    fmt::print(", post {:.0f} us, {} work requests, a batch {:.0f} us (p99 {:.0f})", cell["post_us"].get<double>(),
               cell["work_requests"].get<std::size_t>(), cell["batch_p50_us"].get<double>(),
               cell["batch_p99_us"].get<double>());
  }
  if (cell.contains("call_idle_p99_us")) {
    fmt::print(
        " ({:.2f} of the rate alone), {} p50 / p99 {:.0f} / {:.0f} us alone, {:.0f} / {:.0f} us beside, {:.2f} of "
        "their rate",
        cell["gbit_per_s"].get<double>() / std::max(cell["alone_gbit_per_s"].get<double>(), 1e-9),
        options.memory_small_reads ? "64 B reads" : "128 B calls", cell["call_idle_p50_us"].get<double>(),
        cell["call_idle_p99_us"].get<double>(), cell["call_busy_p50_us"].get<double>(),
        cell["call_busy_p99_us"].get<double>(),
        cell["calls_busy_per_s"].get<double>() / std::max(cell["calls_idle_per_s"].get<double>(), 1.0));
  }
  fmt::print("\n");
}

}  // namespace

int run_memory(RunOptions options) {
  choose_processors(options, true);
  const std::string started = utc_now();
  const std::size_t stride = options.memory_block * (options.memory_scattered ? 2 : 1);
  const std::size_t wanted = stride * options.memory_batch * options.memory_depth;
  const std::size_t path_count = std::max(options.memory_clients, options.memory_owners);
  if (wanted > region_bytes_most / path_count) {
    fmt::print(
        stderr,
        "hawser-bench: {} blocks of {} in flight are more than 4 GiB: lower --batch, --block, --depth, --clients "
        "or --owners\n",
        std::size_t{options.memory_batch} * options.memory_depth * path_count, format_size(options.memory_block));
    return failed_status;
  }
  const std::size_t bytes = std::max(wanted, region_bytes_least);
  std::optional<MemoryMeasured> measured = measure_paths(options, bytes, path_count);
  if (!measured) return failed_status;
  if (!measured->problem.empty()) {
    fmt::print(stderr, "hawser-bench: {}\n", measured->problem);
    return failed_status;
  }
  json cells = json::array();
  cells.push_back(cell_of(options, "hawser", *measured));
  if (options.memory_baseline) {
    Baseline base = measure_baseline(options);
    if (!base.measured.problem.empty()) {
      fmt::print(stderr, "hawser-bench: there is no baseline: {}\n", base.measured.problem);
      return failed_status;
    }
    cells.push_back(cell_of(options, base.name, base.measured));
  }
  for (const json& cell : cells) print_cell(options, cell, measured->path_gbit_per_s);
  if (!options.json_path.empty()) {
    std::ofstream out(options.json_path);
    out << json{{"meta", environment_of(options, started)}, {"cells", cells}}.dump(2) << "\n";
    if (!out) {
      fmt::print(stderr, "hawser-bench: cannot write {}\n", options.json_path);
      return failed_status;
    }
  }
  return 0;
}

}  // namespace hawser::bench
