#include "transport/rdma/device/side_work.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace hawser::transport::rdma {

struct SideWork::State {
  explicit State(Loop& on) : loop(&on) {}

  std::mutex mutex;
  std::condition_variable changed;
  Loop* loop;  // Null once closed. Only then may the loop have been destroyed.
  bool running = false;
  // Results that the loop has not run yet. They may own objects that the work has made. close() drops them here,
  // because the loop's mailbox may outlive the objects that these depend on.
  std::deque<After> done;

  std::optional<After> take() {
    const std::lock_guard lock(mutex);
    if (done.empty()) return std::nullopt;
    std::optional<After> first = std::move(done.front());
    done.pop_front();
    return first;
  }
};

struct SideWork::Job final : detail::Posted {
  Job(std::shared_ptr<State> of, Work todo) : state(std::move(of)), work(std::move(todo)) {}

  void run() override {
    {
      const std::lock_guard lock(state->mutex);
      if (state->loop == nullptr) return;
      state->running = true;
    }
    After after = work();
    work = nullptr;
    std::unique_lock lock(state->mutex);
    if (state->loop != nullptr) {
      state->done.push_back(std::move(after));
      state->loop->post([shared = state] {
        if (std::optional<After> finished = shared->take()) (*finished)();
      });
    } else {
      // close() also waits until this result has been destroyed.
      lock.unlock();
      after = nullptr;
      lock.lock();
    }
    state->running = false;
    state->changed.notify_all();
  }

  const std::shared_ptr<State> state;
  Work work;
};

SideWork::SideWork(Loop& loop, std::shared_ptr<exec::OffloadPool> helper)
    : loop_(loop), helper_(std::move(helper)), state_(std::make_shared<State>(loop)) {}

bool SideWork::run(Work work) {
  auto job = std::make_unique<Job>(state_, std::move(work));
  if (helper_ != nullptr) return helper_->submit(state_.get(), std::move(job)) != 0;
  loop_.post(std::unique_ptr<detail::Posted>(std::move(job)));
  return true;
}

void SideWork::close() noexcept {
  std::deque<After> dropped;  // Destroyed without holding the lock.
  std::unique_lock lock(state_->mutex);
  state_->loop = nullptr;
  state_->changed.wait(lock, [this] { return !state_->running; });
  dropped.swap(state_->done);
}

}  // namespace hawser::transport::rdma
