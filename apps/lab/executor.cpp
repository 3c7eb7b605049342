#include "lab/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace hawser::lab {
namespace {

class HostProcessor final : public Processor {
 public:
  double now_ns() override {
    return static_cast<double>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }
  void did(CpuTask, std::size_t) override {}
};

class HostExecutor final : public Executor {
 public:
  HostExecutor(unsigned threads_max, Duration patience)
      : threads_max_(std::max(1u, threads_max)), patience_(patience) {}

  Result<void> run(std::span<const std::vector<Role*>> threads) override {
    const std::size_t count = std::min<std::size_t>(threads.size(), threads_max_);
    std::vector<std::vector<Role*>> dealt(count);
    for (std::size_t i = 0; i < threads.size(); ++i) {
      dealt[i % count].insert(dealt[i % count].end(), threads[i].begin(), threads[i].end());
    }
    stop_ = false;
    error_.reset();
    last_progress_ns_ = static_cast<std::int64_t>(HostProcessor().now_ns());
    std::vector<std::thread> started;
    for (std::size_t i = 1; i < count; ++i) started.emplace_back([this, &dealt, i] { drive(dealt[i]); });
    if (count > 0) drive(dealt[0]);
    for (std::thread& thread : started) thread.join();
    if (error_) return fail(*error_);
    return {};
  }
  bool simulated() const noexcept override { return false; }

 private:
  void drive(std::vector<Role*> roles) {
    constexpr unsigned idle_steps_between_polls = 4096;
    HostProcessor processor;
    unsigned idle_steps = 0;
    while (!roles.empty()) {
      bool progress = false;
      for (Role* const role : roles) {
        Result<bool> stepped = role->step(processor);
        if (!stepped) return end(std::move(stepped.error()));
        progress = progress || *stepped;
        if (role->done()) {
          std::erase(roles, role);
          progress = true;
          break;
        }
      }
      if (progress) {
        idle_steps = 0;
        if (stop_.load(std::memory_order_relaxed)) return;
        continue;
      }
      if (++idle_steps % idle_steps_between_polls != 0) continue;
      if (stop_.load(std::memory_order_relaxed)) return;
      poll_once(processor, idle_steps == idle_steps_between_polls);
    }
  }

  // Records that this thread has had work lately, or fails if no thread has had any for too long.
  void poll_once(HostProcessor& processor, bool lately) {
    const auto now_ns = static_cast<std::int64_t>(processor.now_ns());
    if (lately) last_progress_ns_.store(now_ns, std::memory_order_relaxed);
    if (now_ns - last_progress_ns_.load(std::memory_order_relaxed) > patience_.count()) {
      end(Error::of_connection(ErrorCode::deadline_exceeded,
                               "nothing has moved for " + std::to_string(patience_.count() / 1'000'000) +
                                   " ms: is the device's port up and its address reachable from itself?"));
    }
    std::this_thread::yield();
  }

  void end(Error error) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::move(error);
    stop_ = true;
  }

  const unsigned threads_max_;
  const Duration patience_;
  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> last_progress_ns_ = 0;
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

std::unique_ptr<Executor> make_executor(unsigned threads_max, Duration patience) {
  return std::make_unique<HostExecutor>(threads_max, patience);
}

}  // namespace hawser::lab
