#include "run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

#include "child.h"
#include "client_role.h"
#include "events.h"
#include "processors.h"
#include "progress.h"
#include "report.h"
#include "server_role.h"
#include "signals.h"
#include "size.h"
#include "table.h"

namespace hawser::bench {
namespace {

constexpr int failed_status = 1;
constexpr int wrong_options_status = 2;
constexpr int interrupted_status = 130;

constexpr double start_s_max = 10;  // For the server to listen.
constexpr double end_s_max = 10;    // For a child to end after its last word.
constexpr double other_end_s_max = 0.2;
constexpr int refresh_ms = 250;

using Clock = std::chrono::steady_clock;

// With nothing heard for so long while a cell is measured, something hangs: waiting for the first replies, counting,
// and waiting for the last.
double silence_s_max(const Options& options) {
  return 1.1 * options.seconds + connect_s_max + warm_up_s_max + 2 * options.call_timeout_s + 10;
}

// Measures all cells with processes that it starts and watches.
class Run {
 public:
  Run(const Options& options, std::vector<Cell> cells)
      : options_(options), cells_(std::move(cells)), progress_(cells_, 1.2 * options.seconds + 0.4) {
    report_.started = utc_now();
  }

  // One pair of processes for each way of waiting, which is a loop's for life.
  void measure_all() {
    std::size_t first = 0;
    while (first < cells_.size() && problem_.empty() && interrupted_by_ == 0) {
      std::size_t end = first;
      while (end < cells_.size() && cells_[end].wait == cells_[first].wait) ++end;
      measure(first, end);
      first = end;
    }
    progress_.clear();
    report_.complete = report_.results.size() == cells_.size() && problem_.empty();
  }

  // Writes the files and says what was wrong.
  int finish() {
    for (const std::string& wrong :
         {options_.json_path.empty() ? "" : write_json(options_.json_path, report_, options_),
          options_.csv_path.empty() ? "" : write_csv(options_.csv_path, report_)}) {
      if (!wrong.empty() && problem_.empty()) problem_ = wrong;
    }
    if (!report_.results.empty()) print_notes();
    if (interrupted_by_ != 0) {
      fmt::print(stderr, "hawser-bench: interrupted after {} of {} cells\n", report_.results.size(), cells_.size());
      return interrupted_status;
    }
    if (!problem_.empty()) {
      fmt::print(stderr, "hawser-bench: {}\n", problem_);
      return failed_status;
    }
    const auto wrong =
        std::ranges::find_if(report_.results, [](const CellResult& one) { return one.errors > 0 || one.calls == 0; });
    if (wrong == report_.results.end()) return 0;
    fmt::print(stderr, "hawser-bench: there were errors; the first, with {} x {}: {}\n",
               format_size(wrong->cell.size_bytes), wrong->cell.concurrency,
               wrong->first_error.empty() ? "no call ended in time" : wrong->first_error);
    return failed_status;
  }

 private:
  void measure(std::size_t first, std::size_t end) {
    const Wait wait = cells_[first].wait;
    std::unique_ptr<Child> server;
    std::string address = options_.connect;
    if (address.empty()) {
      server = std::make_unique<Child>("bench-server", [&](int descriptor) {
        const EventWriter events(descriptor);
        const auto tell = [&](const Event& event) { events.write(event); };
        return pinned(options_.server_cpu) && play_server(options_, wait, "127.0.0.1:0", tell) ? 0 : 1;
      });
      watch(*server, nullptr, start_s_max, [&](const Event& event) {
        if (const auto* listening = std::get_if<Listening>(&event)) address = listening->address;
        return !address.empty();
      });
      if (address.empty()) return;
    }

    const std::vector<Cell> cells(cells_.begin() + static_cast<std::ptrdiff_t>(first),
                                  cells_.begin() + static_cast<std::ptrdiff_t>(end));
    Child client("bench-client", [&](int descriptor) {
      const EventWriter events(descriptor);
      return pinned(options_.client_cpu) && play_client(options_, address, cells, events) ? 0 : 1;
    });
    watch(client, server.get(), silence_s_max(options_), [&](const Event& event) {
      take(event, first);
      return false;
    });
    client.end();
    report_.client_memory_bytes_max = std::max(report_.client_memory_bytes_max, client.memory_bytes_max());
    if (server == nullptr) return;
    server->end();
    report_.server_memory_bytes_max = std::max(report_.server_memory_bytes_max, server->memory_bytes_max());
  }

  static bool pinned(std::optional<int> processor) {
    if (!processor || *processor < 0) return true;
    const std::string wrong = pin_to(*processor);
    if (!wrong.empty()) fmt::print(stderr, "hawser-bench: {}\n", wrong);
    return wrong.empty();
  }

  // Takes what `child` says until `enough` is true, it ends, something is wrong, or nothing is heard for `silence_s`.
  // `other` has to live as long.
  template <class Enough>
  void watch(Child& child, Child* other, double silence_s, Enough enough) {
    const auto silence = std::chrono::duration<double>(silence_s);
    auto heard = Clock::now();
    while (problem_.empty()) {
      while (const std::optional<std::string> line = child.next_line()) {
        heard = Clock::now();
        const std::optional<Event> event = decode_event(*line);
        if (!event) {
          problem_ = fmt::format("{} says \"{}\", which means nothing", child.name(), *line);
          return;
        }
        if (const auto* failed = std::get_if<Failed>(&*event)) problem_ = failed->text;
        if (enough(*event)) return;
      }
      if (child.at_end()) {
        if (child.wait(end_s_max) && child.succeeded() && problem_.empty()) return;
        child.end();
        if (problem_.empty()) problem_ = fmt::format("{} ended early: {}", child.name(), child.how_it_ended());
      }
      // Who loses its server fails as well, and perhaps says so first.
      if (other != nullptr && !other->next_line() && (other->at_end() || !problem_.empty()) &&
          other->wait(other_end_s_max)) {
        const std::string ended = fmt::format("{} ended early: {}", other->name(), other->how_it_ended());
        problem_ = problem_.empty() ? ended : fmt::format("{} ({})", ended, problem_);
      }
      if (!problem_.empty()) return;
      if (Clock::now() - heard > silence) {
        problem_ = fmt::format("nothing was heard of {} for {:.0f} s", child.name(), silence_s);
        return;
      }
      progress_.refresh();
      pollfd waiting[] = {{signals_.descriptor(), POLLIN, 0},
                          {child.descriptor(), POLLIN, 0},
                          {other == nullptr ? -1 : other->descriptor(), POLLIN, 0}};
      poll(waiting, std::size(waiting), refresh_ms);
      interrupted_by_ = signals_.take();
      if (interrupted_by_ != 0) return;
    }
  }

  void take(const Event& event, std::size_t first) {
    if (const auto* connected = std::get_if<Connected>(&event)) report_.pollers = *connected;
    if (const auto* begun = std::get_if<CellBegun>(&event)) progress_.begin(first + begun->index);
    if (const auto* result = std::get_if<CellResult>(&event)) {
      report_.results.push_back(*result);
      progress_.clear();
      fmt::print("{}", table_.add(*result));
      std::fflush(stdout);
    }
  }

  void print_notes() const {
    fmt::print(
        "\n* Seconds of processor time per million calls. Reply: {}, handler: {}. Poller: {} (server), {} (client).",
        options_.reply == ReplyKind::echo ? "echo" : "16 bytes",
        options_.handler == HandlerKind::function ? "function" : "coroutine", report_.pollers.server.poller,
        report_.pollers.client_poller);
    fmt::print(" Peak memory: client {} MiB", report_.client_memory_bytes_max >> 20);
    if (report_.server_memory_bytes_max != 0) fmt::print(", server {} MiB", report_.server_memory_bytes_max >> 20);
    fmt::print(".\n");
    if (std::ranges::any_of(report_.results,
                            [](const CellResult& one) { return one.calls_at_once < one.cell.concurrency; })) {
      fmt::print("Concurrency in brackets: so many calls were in flight, for --bytes-in-flight {}.\n",
                 format_size(options_.bytes_in_flight_max));
    }
    std::fflush(stdout);
  }

  const Options& options_;
  const std::vector<Cell> cells_;
  const Signals signals_;
  Progress progress_;
  Table table_;
  Report report_;
  std::string problem_;     // What ended the run early.
  int interrupted_by_ = 0;  // The signal that did.
};

// Settles the processors that were left open.
void choose_processors(Options& options, bool with_server) {
  const std::vector<int> usable = usable_processors();
  const bool enough = usable.size() >= 2;
  const bool open = !options.client_cpu || (with_server && !options.server_cpu);
  if (!enough && open) {
    fmt::print(stderr, "hawser-bench: one processor only: server and client are not pinned and take turns on it\n");
  }
  if (!options.server_cpu) options.server_cpu = enough && with_server ? usable[0] : -1;
  if (!options.client_cpu) options.client_cpu = enough ? usable[1] : -1;
}

// A connection each, for as many as there may be.
void raise_descriptors_max() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int run_cells(const Options& options) {
  for (const std::string& path : {options.json_path, options.csv_path}) {
    const std::string wrong = path.empty() ? std::string() : check_writable(path);
    if (!wrong.empty()) {
      fmt::print(stderr, "hawser-bench: {}\n", wrong);
      return wrong_options_status;
    }
  }
  raise_descriptors_max();
  try {
    Run run(options, cells_of(options));
    run.measure_all();
    return run.finish();
  } catch (const std::exception& error) {
    fmt::print(stderr, "hawser-bench: {}\n", error.what());
    return failed_status;
  }
}

}  // namespace

int run_both(Options options) {
  choose_processors(options, true);
  return run_cells(options);
}

int run_client(Options options) {
  choose_processors(options, false);
  return run_cells(options);
}

int run_server(Options options) {
  raise_descriptors_max();
  if (options.server_cpu && *options.server_cpu >= 0) {
    const std::string wrong = pin_to(*options.server_cpu);
    if (!wrong.empty()) {
      fmt::print(stderr, "hawser-bench: {}\n", wrong);
      return failed_status;
    }
  }
  const auto tell = [](const Event& event) {
    if (const auto* listening = std::get_if<Listening>(&event)) {
      fmt::print("listening at {}\n", listening->address);
      std::fflush(stdout);
    }
    if (const auto* failed = std::get_if<Failed>(&event)) fmt::print(stderr, "hawser-bench: {}\n", failed->text);
  };
  return play_server(options, options.waits.front(), options.listen, tell) ? 0 : failed_status;
}

}  // namespace hawser::bench
