#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "hawser/loop.h"
#include "hawser/protobuf_channel.h"

namespace hawser::pb {

// Shared with the closure, which may outlive the CallEnd.
struct CallEnd::State {
  std::mutex mutex;  // Guards the following members.
  bool ended = false;
  Loop* loop = nullptr;  // Null: the coroutine runs on no loop.
  std::coroutine_handle<> waiting;
};

namespace {

class EndClosure final : public google::protobuf::Closure {
 public:
  explicit EndClosure(std::function<void()> end) : end_(std::move(end)) {}
  void Run() override {
    const std::unique_ptr<EndClosure> self(this);
    end_();
  }

 private:
  const std::function<void()> end_;
};

}  // namespace

CallEnd::CallEnd() : state_(std::make_shared<State>()) {}

CallEnd::~CallEnd() { leave(); }

google::protobuf::Closure* CallEnd::done() {
  return new EndClosure([state = state_] {
    const auto resume = [](State& of) {
      std::unique_lock lock(of.mutex);
      const std::coroutine_handle<> waiting = std::exchange(of.waiting, nullptr);
      lock.unlock();
      if (waiting) waiting.resume();
    };
    {
      const std::lock_guard lock(state->mutex);
      state->ended = true;
      if (!state->waiting) return;
      // With the lock: the loop exists until the coroutine has gone, which then takes the lock.
      if (state->loop != nullptr) return state->loop->post([state, resume] { resume(*state); });
    }
    resume(*state);
  });
}

bool CallEnd::suspend(std::coroutine_handle<> waiting) {
  const std::lock_guard lock(state_->mutex);
  if (state_->ended) return false;
  state_->loop = Loop::current();
  state_->waiting = waiting;
  return true;
}

void CallEnd::leave() noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->waiting = nullptr;
}

}  // namespace hawser::pb
