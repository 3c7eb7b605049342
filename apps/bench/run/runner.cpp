#include "bench/run/runner.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>

#include "bench/load/client_role.h"
#include "bench/load/connecting_role.h"
#include "bench/load/meter.h"
#include "bench/load/processors.h"

namespace hawser::bench {
namespace {

constexpr double start_s_max = 10;  // Until the server listens.
constexpr double end_s_max = 10;    // From the last event of a child to its end.
constexpr double other_end_s_max = 0.2;
constexpr int refresh_ms = 250;
constexpr std::size_t descriptors_beside_connections = 64;

using Clock = std::chrono::steady_clock;

// Longest time without an event while a cell is measured; more means that a process hangs. It covers waiting for the
// first replies, counting, and waiting for the last replies.
double silence_s_max(const RunOptions& options) {
  return 1.1 * options.seconds + connect_s_max + warm_up_s_max + 2 * options.call_timeout_s + 10;
}

bool pinned(std::optional<int> processor) {
  if (!processor || *processor < 0) return true;
  const std::string wrong = pin_to(*processor);
  if (!wrong.empty()) fmt::print(stderr, "hawser-bench: {}\n", wrong);
  return wrong.empty();
}

}  // namespace

bool Runner::measure(const System& system, const std::vector<Cell>& cells) {
  std::unique_ptr<process::Child> server;
  std::string address = options_.connect;
  if (address.empty()) {
    server = std::make_unique<process::Child>("bench-server", [&](int descriptor) {
      return pinned(options_.server_cpu) ? system.serve(options_, cells.front(), descriptor) : 1;
    });
    watch(*server, nullptr, start_s_max, [&](const Event& event) {
      if (const auto* listening = std::get_if<Listening>(&event)) address = listening->address;
      return !address.empty();
    });
    if (address.empty()) return false;
  }

  std::unique_ptr<process::Child> connecting;
  if (options_.connecting_per_s > 0) {
    connecting = std::make_unique<process::Child>("bench-connects", [&](int) {
      const std::string wrong = raise_descriptors_max(connecting_clients_max);
      if (!wrong.empty()) fmt::print(stderr, "hawser-bench: {}\n", wrong);
      return wrong.empty() ? play_connecting(options_, cells.front(), address) : 1;
    });
  }

  process::Child client("bench-client", [&](int descriptor) {
    const pid_t serving = server == nullptr ? -1 : server->pid();
    return pinned(options_.client_cpu) ? system.measure(options_, address, serving, cells, descriptor) : 1;
  });
  watch(client, server.get(), silence_s_max(options_), [&](const Event& event) {
    if (const auto* connected = std::get_if<Connected>(&event)) pollers_ = *connected;
    if (const auto* begun = std::get_if<CellBegun>(&event)) observer_.begun(begun->index);
    if (const auto* result = std::get_if<CellResult>(&event)) {
      CellResult named = *result;
      named.system = system.name;
      observer_.measured(named);
    }
    return false;
  });
  client.end();
  if (connecting != nullptr) {
    if (connecting->wait(0) && problem_.empty()) {
      problem_ = fmt::format("{} ended early: {}", connecting->name(), connecting->how_it_ended());
    }
    connecting->end();
  }
  client_memory_bytes_max_ = std::max(client_memory_bytes_max_, client.memory_bytes_max());
  if (server == nullptr) return going();
  server->end();
  server_memory_bytes_max_ = std::max(server_memory_bytes_max_, server->memory_bytes_max());
  return going();
}

// Reads the events of `child`; sets `done` if `enough` accepts one.
void Runner::take_lines(process::Child& child, const std::function<bool(const Event&)>& enough, bool& heard,
                        bool& done) {
  while (const std::optional<std::string> line = child.next_line()) {
    heard = true;
    const std::optional<Event> event = decode_event(*line);
    if (!event) {
      problem_ = fmt::format("{} says \"{}\", which means nothing", child.name(), *line);
      return;
    }
    if (const auto* failed = std::get_if<Failed>(&*event)) problem_ = failed->text;
    done = enough(*event);
    if (done) return;
  }
}

// Sets problem_ if one of the processes has ended unexpectedly.
void Runner::look_after(process::Child& child, process::Child* other) {
  if (child.at_end()) {
    child.end();
    if (problem_.empty()) problem_ = fmt::format("{} ended early: {}", child.name(), child.how_it_ended());
  }
  // A client that loses its server fails as well, and its report may arrive first.
  if (other != nullptr && !other->next_line() && (other->at_end() || !problem_.empty()) &&
      other->wait(other_end_s_max)) {
    const std::string ended = fmt::format("{} ended early: {}", other->name(), other->how_it_ended());
    problem_ = problem_.empty() ? ended : fmt::format("{} ({})", ended, problem_);
  }
}

// Reads the events of `child` until `enough` returns true, the child ends, an error occurs, or no event arrives for
// `silence_s`. `other` must stay alive during this time.
void Runner::watch(process::Child& child, process::Child* other, double silence_s,
                   const std::function<bool(const Event&)>& enough) {
  const auto silence = std::chrono::duration<double>(silence_s);
  auto last_heard = Clock::now();
  while (problem_.empty()) {
    bool heard = false;
    bool done = false;
    take_lines(child, enough, heard, done);
    if (done) return;
    if (heard) last_heard = Clock::now();
    if (child.at_end() && child.wait(end_s_max) && child.succeeded() && problem_.empty()) return;
    look_after(child, other);
    if (!problem_.empty()) return;
    if (Clock::now() - last_heard > silence) {
      problem_ = fmt::format("nothing was heard of {} for {:.0f} s", child.name(), silence_s);
      return;
    }
    observer_.waiting();
    pollfd descriptors[] = {{signals_.descriptor(), POLLIN, 0},
                            {child.descriptor(), POLLIN, 0},
                            {other == nullptr ? -1 : other->descriptor(), POLLIN, 0}};
    poll(descriptors, std::size(descriptors), refresh_ms);
    interrupted_by_ = signals_.take();
    if (interrupted_by_ != 0) return;
  }
}

void choose_processors(RunOptions& options, bool with_server) {
  const std::vector<int> usable = usable_processors();
  const bool enough = usable.size() >= 2;
  const bool open = !options.client_cpu || (with_server && !options.server_cpu);
  if (!enough && open) {
    fmt::print(stderr, "hawser-bench: one processor only: server and client are not pinned and take turns on it\n");
  }
  const std::size_t threads = options.server_threads;
  if (with_server && threads > 1 && !options.server_cpu) {
    // Each thread of the server gets a processor, and the client another one. With too few processors, the kernel
    // schedules them.
    const bool plenty = usable.size() > threads;
    if (plenty) options.server_cpus.assign(usable.begin(), usable.begin() + static_cast<std::ptrdiff_t>(threads));
    options.server_cpu = -1;
    if (!options.client_cpu) options.client_cpu = plenty ? usable[threads] : -1;
  }
  if (!options.server_cpu) options.server_cpu = enough && with_server ? usable[0] : -1;
  if (!options.client_cpu) options.client_cpu = enough ? usable[1] : -1;
}

std::string raise_descriptors_max(std::size_t connections) {
  const rlim_t wanted = connections + descriptors_beside_connections;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  if (limit.rlim_max < wanted) {  // Only root may raise the hard limit.
    const rlimit higher{wanted, wanted};
    if (setrlimit(RLIMIT_NOFILE, &higher) == 0) return {};
    return fmt::format("{} connections need {} descriptors and {} are allowed: raise the limit (ulimit -Hn)",
                       connections, wanted, limit.rlim_max);
  }
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return {};
}

}  // namespace hawser::bench
