#include "bench/run/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/temporary_folder.h"
#include "bench/load/tls.h"
#include "bench/results/compare_table.h"
#include "bench/results/medians.h"
#include "bench/results/report.h"
#include "bench/run/lifecycle.h"
#include "bench/run/progress.h"
#include "bench/run/run.h"
#include "bench/run/runner.h"
#include "bench/run/system.h"

namespace hawser::bench {
namespace {

// Small calls, pages, blocks and large objects.
constexpr SizeAndConcurrency default_pairs[] = {{128, 1},       {128, 16},       {128, 256},  {4 << 10, 64},
                                                {256 << 10, 1}, {256 << 10, 16}, {8 << 20, 4}};

class Compare final : Runner::Observer {
 public:
  Compare(const RunOptions& options, std::vector<System> systems, std::vector<Cell> cells)
      : options_(options),
        systems_(std::move(systems)),
        cells_(std::move(cells)),
        runner_(options, *this),
        progress_(cells_, (1.2 * options.seconds + 0.5) * static_cast<double>(systems_.size() * options.repeat)) {
    report_.started = utc_now();
  }

  void measure_all() {
    for (std::size_t i = 0; i < cells_.size() && runner_.going(); ++i) {
      progress_.begin(i);
      measure(cells_[i]);
    }
    progress_.clear();
    report_.complete = report_.results.size() == cells_.size() * systems_.size() && runner_.problem().empty();
    report_.server_memory_bytes_max = runner_.server_memory_bytes_max();
    report_.client_memory_bytes_max = runner_.client_memory_bytes_max();
  }

  int finish() {
    const std::string unwritten = write_files(report_, options_);
    if (!report_.results.empty()) {
      const bool others = systems_.size() > 1 && systems_.back().name != "baseline";
      fmt::print("\n* hawser's calls/s to this one's. Medians of {}, interleaved.{}\n", options_.repeat,
                 others ? " grpc and capnp sleep in the kernel, whatever --wait says." : "");
      std::fflush(stdout);
    }
    return bench::finish(runner_, report_, unwritten, report_.results.size() / systems_.size(), cells_.size());
  }

 private:
  void begun(std::size_t) override {}
  void waiting() override { progress_.refresh(); }
  void measured(const CellResult& result) override {
    report_.repetitions.push_back(result);
    report_.repetitions.back().repetition = repetition_;
  }

  // The systems take turns, so that a machine that slows down does so for all of them.
  void measure(const Cell& cell) {
    const std::size_t first = report_.repetitions.size();
    for (repetition_ = 1; repetition_ <= options_.repeat; ++repetition_) {
      for (const System& system : systems_) {
        if (!runner_.measure(system, {cell})) return;
        if (&system == &systems_.front()) report_.pollers = runner_.pollers();
      }
    }
    std::vector<CellResult> medians;
    for (const System& system : systems_) {
      std::vector<CellResult> own;
      for (std::size_t i = first; i < report_.repetitions.size(); ++i) {
        if (report_.repetitions[i].system == system.name) own.push_back(report_.repetitions[i]);
      }
      if (!own.empty()) medians.push_back(median_of(own));
    }
    report_.results.insert(report_.results.end(), medians.begin(), medians.end());
    progress_.clear();
    fmt::print("{}", table_.add(medians));
    std::fflush(stdout);
  }

  const RunOptions& options_;
  const std::vector<System> systems_;  // Hawser is the first.
  const std::vector<Cell> cells_;
  Runner runner_;
  Progress progress_;
  CompareTable table_;
  Report report_;
  unsigned repetition_ = 0;
};

// A program to compare with, and the function that returns why it cannot run.
struct KnownPeer {
  std::function<System()> system;
  std::function<std::string(const RunOptions&)> missing;
};

KnownPeer known_peer(const std::string& name) {
  if (name == "baseline") return {baseline_system, missing_baseline};
  if (name == "ucx") return {ucx_perftest_system, missing_ucx_perftest};
  if (name == "loops") return {loops_system, missing_loops};
  if (name == "observed") return {observed_system, [](const RunOptions&) { return std::string(); }};
  if (name == "grpc-client") return {grpc_client_system, missing_grpc_half};
  if (name == "grpc-server") return {grpc_server_system, missing_grpc_half};
  return {[name] { return peer_system(name); },
          [name](const RunOptions& options) { return missing_peer(name, options); }};
}

}  // namespace

int run_compare(RunOptions options) {
  choose_processors(options, true);
  if (options.pairs.empty()) options.pairs.assign(std::begin(default_pairs), std::end(default_pairs));
  std::vector<System> systems = {hawser_system()};
  std::string wrong;
  for (const std::string& peer : options.peers) {
    const KnownPeer known = known_peer(peer);
    systems.push_back(known.system());
    if (wrong.empty()) wrong = known.missing(options);
  }
  if (wrong.empty()) wrong = preflight_check(options);
  return run_unless(wrong, [&] {
    std::optional<TemporaryFolder> folder;
    if (std::ranges::find(options.transports, "tls") != options.transports.end()) {
      options.tls_files = issue_tls_files(folder.emplace().path().string());
    }
    Compare compare(options, std::move(systems), cells_of(options));
    compare.measure_all();
    return compare.finish();
  });
}

}  // namespace hawser::bench
