#include "bench/memory/memory_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
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
#include "bench/memory/memory_service.h"
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

double gbit_per_s(double bytes, double seconds) { return seconds > 0 ? bytes * 8 / seconds / 1e9 : 0; }

// The result of one measurement with the library.
struct Measured {
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
};

struct Work {
  const Options& options;
  RemoteMemory remote;
  RemoteRegion region;
  std::vector<TransferBatch> batches;  // One for each operation in flight.
  Measured& measured;
  RemoteMemory small;         // Makes the reads beside the transfers,
  MutableBytes small_memory;  // into this memory.
  bool counting = false;
  bool stop = false;
};

Task<void> keep_transferring(Work& work, const TransferBatch& batch) {
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
    auto joining = scope.join();
    co_await std::move(joining);
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
Task<void> keep_calling(Client& client, Work& work, const bool& stop, std::vector<double>& times) {
  const std::string text(128, 'x');
  while (!stop) {
    const auto begin = Clock::now();
    if (work.options.memory_small_reads) {
      auto read = work.small.read(work.region, 0, work.small_memory);
      const Result<void> done = co_await std::move(read);
      if (!done) work.measured.problem = "a small read: " + done.error().describe();
      if (!done) co_return;
    } else {
      auto call = client.call<memory_echo>(text);
      const Result<std::string> reply = co_await std::move(call);
      if (!reply) work.measured.problem = "a call: " + reply.error().describe();
      if (!reply) co_return;
    }
    times.push_back(seconds_since(begin) * 1e6);
    auto pause = Loop::current()->sleep(std::chrono::microseconds(50));
    co_await pause;
  }
}

Task<void> pause_for(double seconds) {
  auto pause = Loop::current()->sleep(std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)));
  co_await pause;
}

// The blocks of the batches: contiguous, or every other block in random order.
void prepare(Work& work, MutableBytes memory) {
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
      batch.add(memory.subspan(base + order[k] * stride, block), base + order[k] * stride);
    }
  }
}

// Transfers for `seconds`, after a warm-up of a quarter of that, with calls beside them if `client` is not null.
Task<void> measure_transfers(Work& work, double seconds, Client* client = nullptr) {
  work.stop = false;
  Scope scope;
  for (const TransferBatch& batch : work.batches) scope.spawn(keep_transferring(work, batch));
  std::vector<double> times;
  if (client != nullptr) scope.spawn(keep_calling(*client, work, work.stop, times));
  auto warm = pause_for(seconds / 4);
  co_await std::move(warm);
  times.clear();
  work.counting = true;
  const auto begin = Clock::now();
  auto counted = pause_for(seconds);
  co_await std::move(counted);
  work.counting = false;
  work.measured.seconds += seconds_since(begin);
  std::vector<double>& all = work.measured.busy_call_us;
  all.insert(all.end(), times.begin(), times.end());
  work.stop = true;
  auto joining = scope.join();
  co_await std::move(joining);
}

// Calls alone, transfers alone and both, in several rounds, so that a change of the machine's speed affects all alike.
Task<void> measure_rounds(Work& work, Client& client) {
  constexpr unsigned rounds = 4;
  Measured& measured = work.measured;
  const double seconds = work.options.seconds / rounds;
  double idle_seconds = 0;
  for (unsigned round = 0; round < rounds && measured.problem.empty(); ++round) {
    bool stop = false;
    Scope calls;
    calls.spawn(keep_calling(client, work, stop, measured.idle_call_us));
    const auto begin = Clock::now();
    auto idle = pause_for(seconds);
    co_await std::move(idle);
    idle_seconds += seconds_since(begin);
    stop = true;
    auto joining = calls.join();
    co_await std::move(joining);

    // The results of transfers alone are kept apart.
    const std::uint64_t bytes = measured.bytes;
    const double counted = measured.seconds;
    const std::uint64_t batches = measured.batches;
    auto alone = measure_transfers(work, seconds);
    co_await std::move(alone);
    measured.alone_bytes += std::exchange(measured.bytes, bytes) - bytes;
    measured.alone_seconds += std::exchange(measured.seconds, counted) - counted;
    measured.batches = batches;

    auto beside = measure_transfers(work, seconds, &client);
    co_await std::move(beside);
  }
  measured.idle_calls_per_s = static_cast<double>(measured.idle_call_us.size()) / idle_seconds;
  measured.busy_calls_per_s = static_cast<double>(measured.busy_call_us.size()) / std::max(measured.seconds, 1e-9);
}

bool matches(Bytes memory) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (std::to_integer<unsigned char>(memory[i]) != memory_pattern(i)) return false;
  }
  return true;
}

Task<void> measure_library(const Options& options, std::string address, std::size_t bytes, Measured& measured) {
  ClientOptions with;
  with.transports = client_transports(options.transports.front());
  Client client(*Loop::current(), with);
  auto connecting = client.connect(address);
  const Result<void> connected = co_await std::move(connecting);
  if (!connected) {
    measured.problem = connected.error().describe();
    co_return;
  }
  std::optional<Client> second;  // Transfers over a connection of their own.
  if (options.memory_separate) {
    auto connecting_again = second.emplace(*Loop::current(), with).connect(std::move(address));
    const Result<void> connected_again = co_await std::move(connecting_again);
    if (!connected_again) {
      measured.problem = connected_again.error().describe();
      co_return;
    }
  }
  Client& transfers = second ? *second : client;
  auto asking = client.call<&MemoryService::region>();
  const Result<RemoteRegion> region = co_await std::move(asking);
  Result<RegisteredBuffer> buffer = RegisteredBuffer::allocate(transfers, bytes);
  Result<RegisteredBuffer> small = RegisteredBuffer::allocate(client, 4096);
  if (!region || !buffer || !small) {
    measured.problem = (!region ? region.error() : !buffer ? buffer.error() : small.error()).describe();
    co_return;
  }
  const TransferPriority priority = options.memory_bulk ? TransferPriority::bulk : TransferPriority::interactive;
  Work work{.options = options,
            .remote = RemoteMemory(transfers, priority),
            .region = *region,
            .batches = {},
            .measured = measured,
            .small = RemoteMemory(client),
            .small_memory = small->memory().first(64)};
  measured.one_sided = work.remote.capabilities().one_sided;
  const bool reads = options.memory_op == "read";
  if (!reads) {
    for (std::size_t i = 0; i < bytes; ++i) buffer->memory()[i] = static_cast<std::byte>(memory_pattern(i));
  }
  prepare(work, buffer->memory());
  measured.runs = work.batches.front().runs().size();
  auto running = options.memory_calls ? measure_rounds(work, client) : measure_transfers(work, options.seconds);
  co_await std::move(running);
  if (!measured.problem.empty()) co_return;
  // Validates every byte: what was written is read back, and what was read is compared with the pattern.
  std::memset(buffer->memory().data(), 0, bytes);
  auto reading = work.remote.read(*region, 0, buffer->memory().first(bytes), {.checksum = true});
  const Result<void> read = co_await std::move(reading);
  measured.validated = read && matches(buffer->memory().first(bytes));
  if (!measured.validated) measured.problem = read ? "the data is wrong" : read.error().describe();
}

// Sends blocks over a bare socket, as many in flight as the batches have.
Measured measure_sockets(const Options& options, std::size_t bytes) {
  Measured measured;
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

json cell_of(const Options& options, const char* system, Measured& measured) {
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
               {"gbit_per_s", gbit_per_s(static_cast<double>(measured.bytes), measured.seconds)}};
  if (std::string_view(system) != "hawser") return cell;
  cell["post_us"] = percentile(measured.post_us, 0.5);
  cell["post_p99_us"] = percentile(measured.post_us, 0.99);
  cell["batch_p50_us"] = percentile(measured.batch_us, 0.5);
  cell["batch_p99_us"] = percentile(measured.batch_us, 0.99);
  cell["work_requests"] = measured.runs;
  cell["one_sided"] = measured.one_sided;
  cell["validated"] = measured.validated;
  if (options.memory_calls) {
    cell["calls_idle_per_s"] = measured.idle_calls_per_s;
    cell["calls_busy_per_s"] = measured.busy_calls_per_s;
    cell["alone_gbit_per_s"] = gbit_per_s(static_cast<double>(measured.alone_bytes), measured.alone_seconds);
    cell["call_idle_p50_us"] = percentile(measured.idle_call_us, 0.5);
    cell["call_idle_p99_us"] = percentile(measured.idle_call_us, 0.99);
    cell["call_busy_p50_us"] = percentile(measured.busy_call_us, 0.5);
    cell["call_busy_p99_us"] = percentile(measured.busy_call_us, 0.99);
  }
  return cell;
}

}  // namespace

int run_memory(Options options) {
  choose_processors(options, true);
  const std::size_t stride = options.memory_block * (options.memory_scattered ? 2 : 1);
  const std::size_t wanted = stride * options.memory_batch * options.memory_depth;
  if (wanted > region_bytes_most) {
    fmt::print(stderr,
               "hawser-bench: {} blocks of {} in flight are more than 4 GiB: lower --batch, --block or --depth\n",
               std::size_t{options.memory_batch} * options.memory_depth, format_size(options.memory_block));
    return failed_status;
  }
  const std::size_t bytes = std::max(wanted, region_bytes_least);
  Measured measured;
  json cells = json::array();
  {
    const MemoryOwner owner(options, bytes, false);
    if (owner.address().empty()) return failed_status;
    // A thread, so that the process of a bare socket is not pinned to the client's processor.
    std::thread([&] {
      if (options.client_cpu && *options.client_cpu >= 0) static_cast<void>(pin_to(*options.client_cpu));
      Loop loop(options.loop(options.waits.front()));
      loop.run(measure_library(options, owner.address(), bytes, measured));
    }).join();
  }
  if (!measured.problem.empty()) {
    fmt::print(stderr, "hawser-bench: {}\n", measured.problem);
    return failed_status;
  }
  cells.push_back(cell_of(options, "hawser", measured));
  if (options.memory_baseline) {
    const bool stream = options.transports.front() == "tcp" || options.transports.front() == "unix";
    Measured base;
    // The same blocks as those of the batches, so that the same caches hold them.
    const std::size_t touched = options.memory_block * options.memory_batch * options.memory_depth;
    std::thread([&] {
      if (options.client_cpu && *options.client_cpu >= 0) static_cast<void>(pin_to(*options.client_cpu));
      if (stream) {
        base = measure_sockets(options, touched);
      } else {
        const CopyMeasured copied = measure_copies(options, touched);
        base.seconds = copied.seconds;
        base.bytes = copied.bytes;
      }
    }).join();
    if (base.problem.empty()) cells.push_back(cell_of(options, stream ? "sockets" : "memcpy", base));
  }
  for (const json& cell : cells) {
    fmt::print("{:<8} {} {} {}x{}{}: {:.1f} Gbit/s", cell["system"].get<std::string>(),
               cell["transport"].get<std::string>(), cell["op"].get<std::string>(), format_size(options.memory_block),
               options.memory_batch, options.memory_scattered ? " scattered" : "", cell["gbit_per_s"].get<double>());
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
  if (!options.json_path.empty()) {
    std::ofstream out(options.json_path);
    out << json{{"command", options.command_line}, {"cells", cells}}.dump(2) << "\n";
    if (!out) {
      fmt::print(stderr, "hawser-bench: cannot write {}\n", options.json_path);
      return failed_status;
    }
  }
  return 0;
}

}  // namespace hawser::bench
