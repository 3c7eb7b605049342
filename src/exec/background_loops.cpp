#include "hawser/background_loops.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "base/log_line.h"
#include "os/pin_thread.h"
#include "os/process_id.h"

namespace hawser {
namespace {

// The thread keeps its worker: it may outlive the BackgroundLoops that a task of its own loop has destroyed.
struct Worker {
  explicit Worker(LoopOptions options) : loop(std::move(options)) {}

  void run(int cpu) {
    if (cpu >= 0 && !pin_thread(cpu)) {
      log_line(loop.options().log, LogLevel::warning, "exec",
               [cpu] { return "cannot pin a thread to processor " + std::to_string(cpu); });
    }
    while (!ending.load(std::memory_order_acquire)) loop.run();
  }
  void end() noexcept {
    ending.store(true, std::memory_order_release);
    loop.stop();
    if (Loop::current() == &loop) {
      thread.detach();
    } else {
      thread.join();
    }
  }

  Loop loop;
  std::atomic<bool> ending{false};
  std::thread thread;
};

}  // namespace

struct BackgroundLoops::State {
  ~State() {
    for (const auto& worker : workers) worker->end();
  }

  const int process = process_id();
  std::vector<std::shared_ptr<Worker>> workers;
};

BackgroundLoops::BackgroundLoops(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::shared_ptr<BackgroundLoops> BackgroundLoops::start(BackgroundOptions options) {
  auto state = std::make_unique<State>();
  const unsigned count = std::max(1U, options.threads);
  for (unsigned i = 0; i < count; ++i) {
    auto worker = std::make_shared<Worker>(options.loop);
    const int cpu = options.cpus.empty() ? -1 : options.cpus[i % options.cpus.size()];
    worker->thread = std::thread([worker, cpu] { worker->run(cpu); });
    state->workers.push_back(std::move(worker));
  }
  return std::shared_ptr<BackgroundLoops>(new BackgroundLoops(std::move(state)));
}

BackgroundLoops::~BackgroundLoops() {
  if (!in_this_process()) static_cast<void>(state_.release());
}

std::size_t BackgroundLoops::size() const noexcept { return state_->workers.size(); }

Loop& BackgroundLoops::loop(std::size_t index) const noexcept { return state_->workers[index]->loop; }

bool BackgroundLoops::in_this_process() const noexcept { return state_->process == process_id(); }

}  // namespace hawser
