#include "hawser/blocking_client.h"

#include <atomic>
#include <chrono>
#include <coroutine>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/futex.h"
#include "rpc/client/blocking_site.h"

namespace hawser {
namespace detail {
namespace {

// Ends the connections of one site.
class BlockingClosing final : public ThreadWork {
 public:
  BlockingClosing(std::shared_ptr<BlockingState> state, BlockingSite& site) : ThreadWork(std::move(state), &site) {}
  void run() override {
    site_.close();
    site_.end(*this);
  }
};

Error of_the_parent() {
  return Error::of_call(
      ErrorCode::invalid_argument,
      "this BlockingClient was made by the parent of this process, whose loops do not run here after fork(): make "
      "another one");
}

}  // namespace

// Threads take the loops in turn, and each thread stays with its loop.
BlockingSite& BlockingState::site() noexcept {
  if (sites.size() == 1) return *sites.front();
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t number = threads.fetch_add(1, std::memory_order_relaxed);
  return *sites[number % sites.size()];
}

ThreadWork::ThreadWork(std::shared_ptr<BlockingState> state, BlockingSite* site)
    : state_(std::move(state)), site_(site != nullptr ? *site : state_->site()) {}
ThreadWork::~ThreadWork() = default;

void ThreadWork::submit() { site_.loop().post(std::unique_ptr<Posted>(this)); }

std::optional<Error> ThreadWork::refuse_to_block(std::string_view function) {
  if (Loop::current() == nullptr) [[likely]]
    return std::nullopt;
  return Error::of_call(
      ErrorCode::invalid_argument,
      std::string(function) +
          "() would block a thread that runs a loop, as in a handler, a coroutine or a callback: co_await a "
          "call of a ClientPool or Client there, use start() or then(), or offload the handler");
}

Error ThreadWork::closed_error() {
  return Error::of_connection(ErrorCode::unavailable, "the BlockingClient was closed");
}

std::optional<Error> ThreadWork::wait() noexcept {
  if (done()) return std::nullopt;
  // Asked here and not before each call, since it costs a system call.
  if (!state_->loops->in_this_process()) return of_the_parent();
  wait_for(forever);
  return std::nullopt;
}

bool ThreadWork::wait_for(Duration limit) noexcept {
  using Clock = std::chrono::steady_clock;
  std::uint32_t word = running;
  if (word_.compare_exchange_strong(word, awaited, std::memory_order_acq_rel, std::memory_order_acquire))
    word = awaited;
  if (limit == forever) {
    for (; word != ended; word = word_.load(std::memory_order_acquire)) futex_wait(word_, awaited, forever);
    return true;
  }
  const Clock::time_point start = Clock::now();
  for (; word != ended; word = word_.load(std::memory_order_acquire)) {
    const Duration passed = Clock::now() - start;
    if (passed >= limit) return false;
    futex_wait(word_, awaited, limit - passed);
  }
  return true;
}

void ThreadWork::notify() noexcept {
  if (word_.exchange(ended, std::memory_order_acq_rel) == awaited) futex_wake(word_);
}

void ThreadCall::submit_shared(const std::shared_ptr<ThreadCall>& call) {
  call->shared_ = call;
  if (call->state_->loops->in_this_process()) return call->submit();
  call->set_error(of_the_parent());
  call->notify();
}

void ThreadCall::cancel(const std::shared_ptr<ThreadCall>& call) {
  if (!call->state_->loops->in_this_process()) return;
  call->site_.loop().post([call] { call->cancel_here(); });
}

std::optional<Error> ThreadCall::at_end(const std::shared_ptr<ThreadCall>& call, std::function<void()> work) {
  if (!call->state_->loops->in_this_process()) {
    if (!call->done()) return of_the_parent();
    work();
    return std::nullopt;
  }
  const std::lock_guard lock(call->end_mutex_);
  if (call->done()) {
    call->site_.loop().post([kept = call->state_, after = std::move(work)]() mutable { after(); });
  } else {
    call->at_end_ = std::move(work);
  }
  return std::nullopt;
}

CallEnd::CallEnd(std::shared_ptr<ThreadCall> call) : call_(std::move(call)) {
  if (call_ == nullptr || call_->done()) return;
  if (Loop::current() == nullptr) {
    refused_ = Error::of_call(ErrorCode::invalid_argument,
                              "co_await of a StartedCall on a thread that runs no loop: call get() there");
  } else if (!call_->state_->loops->in_this_process()) {
    refused_ = of_the_parent();
  }
}

CallEnd::~CallEnd() {
  if (call_ == nullptr) return;
  const std::lock_guard lock(call_->end_mutex_);
  call_->waiting_on_ = nullptr;
  call_->coroutine_ = nullptr;
}

bool CallEnd::await_suspend(std::coroutine_handle<> waiting) {
  const std::lock_guard lock(call_->end_mutex_);
  if (call_->done()) return false;
  call_->waiting_on_ = Loop::current();
  call_->coroutine_ = waiting;
  return true;
}

}  // namespace detail

BlockingClient::BlockingClient(std::string address, BlockingOptions options)
    : state_(std::make_shared<detail::BlockingState>()) {
  state_->loops = options.loops ? std::move(options.loops) : BackgroundLoops::start(std::move(options.background));
  state_->address = std::move(address);
  state_->pool = std::move(options.pool);
  for (std::size_t i = 0; i < state_->loops->size(); ++i) {
    state_->sites.push_back(std::make_unique<detail::BlockingSite>(*state_, state_->loops->loop(i)));
  }
}

BlockingClient::~BlockingClient() { close(); }

Result<void> BlockingClient::connect() {
  struct Nothing {
    static Task<Result<void>> of(Client&) { co_return Result<void>{}; }
  };
  return run(&Nothing::of);
}

void BlockingClient::close() {
  if (!state_->loops->in_this_process()) return;
  if (Loop::current() != nullptr) {
    for (const auto& site : state_->sites) {
      site->loop().post([kept = state_, &closed = *site] { closed.close(); });
    }
    return;
  }
  std::vector<std::unique_ptr<detail::BlockingClosing>> closing;
  for (const auto& site : state_->sites) {
    closing.push_back(std::make_unique<detail::BlockingClosing>(state_, *site));
    closing.back()->submit();
  }
  for (const auto& one : closing) one->wait();
}

}  // namespace hawser
