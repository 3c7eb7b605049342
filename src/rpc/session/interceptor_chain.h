#pragma once

#include <coroutine>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/detail/send_reply.h"
#include "hawser/interceptor.h"

namespace hawser::rpc {

template <class CallInfo>
using InterceptorList = std::vector<std::shared_ptr<detail::Interceptor<CallInfo>>>;

// Runs the interceptors of one call, from the first to the last, and then the call itself. Belongs to one loop.
// Destroying it ends the call: what tasks of next() still run is destroyed where it waits, and they return an error.
template <class CallInfo>
class InterceptorChain : public detail::NextTarget {
 public:
  InterceptorChain(const InterceptorList<CallInfo>& interceptors, CallInfo& info)
      : interceptors_(interceptors), info_(info), link_(std::make_shared<detail::NextLink>(this)) {}
  InterceptorChain(const InterceptorChain&) = delete;
  InterceptorChain& operator=(const InterceptorChain&) = delete;

  Task<Result<void>> run() { return step(link_, 0); }
  Task<Result<void>> enter_level(std::size_t level) final { return step(link_, level); }

 protected:
  ~InterceptorChain() { end(); }

  // Ends what tasks of next() still run. A derived class calls it before its members end, since coroutines of
  // make_call() use them.
  void end() noexcept {
    link_->target = nullptr;
    while (runs_ != nullptr) runs_->end();
  }

  // Makes the call itself. Called once, and again after repeat() has allowed it.
  virtual Task<Result<void>> make_call() = 0;
  // The error for an exception that left `part`: "an interceptor" or "the handler".
  virtual Error thrown(std::string_view part, std::string text) = 0;
  // An interceptor called next() again. `running`: what its first call of next() runs has not ended. Returns what the
  // second call of next() returns; empty: it runs the rest of the call again.
  virtual std::optional<Result<void>> repeat(bool running) {
    static_cast<void>(running);
    return fail(ErrorCode::internal,
                "an interceptor called next() twice: it runs the rest of a call, which runs once; make another "
                "call to try again");
  }
  // The coroutine of an interceptor begins to run. Null: it has ended.
  virtual void entered(const void* frame) noexcept { static_cast<void>(frame); }

 private:
  // Until the end of a level, also if its task is destroyed.
  struct Running {
    Running(const detail::NextLink& of, std::size_t entered) noexcept : link(of), level(entered) { set(level + 1); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() { set(level); }
    void set(std::size_t levels) const noexcept {
      if (link.target != nullptr) static_cast<InterceptorChain*>(link.target)->running_ = levels;
    }
    const detail::NextLink& link;
    const std::size_t level;
  };

  // Awaits the coroutine of one level: an interceptor, or the call itself. These refer to the call, and a task of
  // next() may outlive it: the chain then ends the coroutine where it waits.
  class Run {
   public:
    Run(InterceptorChain& chain, Task<Result<void>> task)
        : chain_(&chain),
          loop_(chain.info_.loop()),
          task_(std::move(task)),
          ended_(std::move(task_).operator co_await()),
          next_(chain.runs_) {
      chain.runs_ = this;
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    ~Run() {
      if (waiting_) loop_.forget(waiting_);
      if (chain_ != nullptr) unlink();
    }
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
      awaiting_ = awaiting;
      return ended_.await_suspend(awaiting);
    }
    Result<void> await_resume() {
      waiting_ = nullptr;
      if (chain_ == nullptr) return fail(ErrorCode::cancelled, "the call ended before its handler did");
      return ended_.await_resume();
    }
    void end() noexcept {
      unlink();
      chain_ = nullptr;
      task_ = {};
      try {
        loop_.resume_soon(awaiting_);
        waiting_ = awaiting_;
      } catch (const std::bad_alloc&) {
        // The task of next() stays suspended until it is destroyed.
      }
    }

   private:
    void unlink() noexcept {
      Run** at = &chain_->runs_;
      while (*at != this) at = &(*at)->next_;
      *at = next_;
    }

    InterceptorChain* chain_;  // Null: it has ended.
    Loop& loop_;
    Task<Result<void>> task_;
    decltype(std::declval<Task<Result<void>>>().operator co_await()) ended_;
    Run* next_;
    std::coroutine_handle<> awaiting_;
    std::coroutine_handle<> waiting_;  // Non-null: the loop will resume it.
  };

  // A coroutine of its own data: the chain may end before it begins, and while it waits.
  static Task<Result<void>> step(std::shared_ptr<detail::NextLink> link, std::size_t level) {
    const auto chain = [&] { return static_cast<InterceptorChain*>(link->target); };
    // The interceptor before this level has this Next.
    if (chain() == nullptr || chain()->running_ < level) co_return ended();
    if (chain()->reached_ != level) {
      if (std::optional<Result<void>> instead = chain()->repeat(chain()->running_ > level)) {
        co_return std::move(*instead);
      }
    }
    chain()->reached_ = level + 1;
    const Running running(*link, level);
    std::string text;
    try {
      if (level == chain()->interceptors_.size()) {
        co_return co_await Run(*chain(), chain()->make_call());
      }
      auto around = chain()->interceptors_[level]->around(chain()->info_, Next(link, level + 1));
      const void* const before = std::exchange(chain()->frame_, around.frame());
      chain()->entered(around.frame());
      Result<void> outcome = co_await Run(*chain(), std::move(around));
      if (chain() != nullptr) chain()->entered(chain()->frame_ = before);
      co_return outcome;
    } catch (...) {
      text = detail::exception_text();
    }
    if (chain() == nullptr) co_return ended();
    co_return fail(
        chain()->thrown(level == chain()->interceptors_.size() ? "the handler" : "an interceptor", std::move(text)));
  }
  static std::unexpected<Error> ended() {
    return fail(ErrorCode::internal, "next() ran after its interceptor had ended: await it within the interceptor");
  }

  const InterceptorList<CallInfo>& interceptors_;
  CallInfo& info_;
  std::size_t reached_ = 0;  // Number of levels that were entered, since the last repetition.
  std::size_t running_ = 0;  // Number of levels that have not ended.
  const void* frame_ = nullptr;
  Run* runs_ = nullptr;  // The coroutines that are awaited, the newest first.
  const std::shared_ptr<detail::NextLink> link_;
};

}  // namespace hawser::rpc
