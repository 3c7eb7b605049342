#include "bench/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "bench/load/processors.h"
#include "bench/load/server_role.h"
#include "bench/load/size.h"
#include "bench/results/report.h"
#include "bench/results/rtt_table.h"
#include "bench/results/table.h"
#include "bench/run/lifecycle.h"
#include "bench/run/progress.h"
#include "bench/run/runner.h"
#include "bench/run/system.h"

namespace hawser::bench {
namespace {

// Measures all cells of one system and prints the results as they arrive.
class Run final : Runner::Observer {
 public:
  Run(const RunOptions& options, System system, std::vector<Cell> cells)
      : options_(options),
        system_(std::move(system)),
        cells_(std::move(cells)),
        runner_(options, *this),
        progress_(cells_, 1.2 * options.seconds + 0.4) {
    report_.started = utc_now();
  }

  // Starts two processes for each transport and each way of waiting, since a loop's way of waiting does not change.
  void measure_all() {
    std::size_t end = 0;
    while (end < cells_.size() && runner_.going()) {
      first_ = end;
      while (end < cells_.size() && cells_[end].wait == cells_[first_].wait &&
             cells_[end].transport == cells_[first_].transport &&
             (cells_[end].mode == Mode::threads) == (cells_[first_].mode == Mode::threads))
        ++end;
      runner_.measure(system_, {cells_.begin() + static_cast<std::ptrdiff_t>(first_),
                                cells_.begin() + static_cast<std::ptrdiff_t>(end)});
      if (cells_[first_].transport == "auto") auto_took_ = runner_.pollers().transport;
    }
    progress_.clear();
    report_.complete = report_.results.size() == cells_.size() && runner_.problem().empty();
    report_.pollers = runner_.pollers();
    report_.server_memory_bytes_max = runner_.server_memory_bytes_max();
    report_.client_memory_bytes_max = runner_.client_memory_bytes_max();
  }

  // Writes the files and prints the problems.
  int finish() {
    const std::string unwritten = write_files(report_, options_);
    if (!report_.results.empty()) print_notes();
    return bench::finish(runner_, report_, unwritten, report_.results.size(), cells_.size());
  }

 private:
  void begun(std::size_t cell) override { progress_.begin(first_ + cell); }
  void waiting() override { progress_.refresh(); }
  void measured(const CellResult& result) override {
    report_.results.push_back(result);
    progress_.clear();
    fmt::print("{}", table_.add(result));
    std::fflush(stdout);
  }

  void print_notes() const {
    fmt::print("\n* Seconds of processor time per million calls. Reply: {}",
               options_.reply == ReplyKind::echo ? "echo" : "16 bytes");
    if (report_.results.front().system == "hawser") {
      fmt::print(", handler: {}", options_.handler == HandlerKind::function ? "function" : "coroutine");
    }
    fmt::print(". Poller: {} (server), {} (client).", report_.pollers.server.poller, report_.pollers.client_poller);
    if (!auto_took_.empty()) fmt::print(" auto took {}.", auto_took_);
    fmt::print(" Peak memory: client {} MiB", report_.client_memory_bytes_max >> 20);
    if (report_.server_memory_bytes_max != 0) fmt::print(", server {} MiB", report_.server_memory_bytes_max >> 20);
    fmt::print(".\n");
    if (options_.rate_per_s > 0) {
      fmt::print("Calls began by the clock, {} a second in all; latency counts from when they should have begun.\n",
                 with_thousands(options_.rate_per_s));
    }
    if (std::ranges::any_of(report_.results,
                            [](const CellResult& one) { return one.calls_at_once < one.cell.concurrency; })) {
      fmt::print("Concurrency in brackets: so many calls were in flight, for --bytes-in-flight {}.\n",
                 format_size(options_.bytes_in_flight_max));
    }
    if (options_.rtt_table) fmt::print("\nRound trip of 4K, median\n\n{}", rtt_table(report_.results));
    std::fflush(stdout);
  }

  const RunOptions& options_;
  const System system_;
  const std::vector<Cell> cells_;
  Runner runner_;
  Progress progress_;
  TextTable table_;
  Report report_;
  std::string auto_took_;  // The transport that carried the cells of "auto"; empty if there are none.
  std::size_t first_ = 0;  // Index of the first cell that the runner is measuring.
};

int run_cells(const RunOptions& options, System system, std::string wrong = {}) {
  if (wrong.empty()) wrong = preflight_check(options);
  return run_unless(wrong, [&] {
    Run run(options, std::move(system), cells_of(options));
    run.measure_all();
    return run.finish();
  });
}

}  // namespace

int run_both(RunOptions options) {
  choose_processors(options, true);
  if (options.rtt_table) {
    options.sizes_bytes = {rtt_size_bytes};
    options.concurrencies.assign(std::begin(rtt_depths), std::end(rtt_depths));
    options.pairs.clear();
    if (std::ranges::find(options.transports, "tcp") == options.transports.end()) options.transports.push_back("tcp");
    if (options.transports.size() == 1) {
      return run_unless("--rtt-table sets a transport beside tcp: give --transport shm, unix, ucx or rdma",
                        [] { return 0; });
    }
  }
  return run_cells(options, hawser_system());
}

int run_limit(RunOptions options) {
  choose_processors(options, true);
  return run_cells(options, baseline_system(), missing_baseline(options));
}

int run_client(RunOptions options) {
  choose_processors(options, false);
  return run_cells(options, hawser_system());
}

int run_server(RunOptions options) {
  raise_descriptors_max(0);
  if (options.server_cpu && *options.server_cpu >= 0) {
    const std::string wrong = pin_to(*options.server_cpu);
    if (!wrong.empty()) {
      fmt::print(stderr, "hawser-bench: {}\n", wrong);
      return failed_status;
    }
  }
  const auto notify = [](const Event& event) {
    if (const auto* listening = std::get_if<Listening>(&event)) {
      fmt::print("listening at {}\n", listening->address);
      std::fflush(stdout);
    }
    if (const auto* failed = std::get_if<Failed>(&event)) fmt::print(stderr, "hawser-bench: {}\n", failed->text);
  };
  return play_server(options, options.transports.front(), options.waits.front(), options.listen, notify)
             ? 0
             : failed_status;
}

}  // namespace hawser::bench
