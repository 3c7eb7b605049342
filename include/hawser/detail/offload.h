#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <variant>

#include "hawser/loop.h"

// The templates behind Loop::offload(). Included by hawser/loop.h.
namespace hawser {
namespace detail {

const char* offload_refusal(bool of_no_client) noexcept;  // Error text.

// One piece of blocking work and its result. The awaiter abandons it by resetting `waiting`.
template <class F>
struct OffloadJob {
  using Value = std::invoke_result_t<F&>;
  using Stored = std::conditional_t<std::is_void_v<Value>, std::monostate, Value>;

  explicit OffloadJob(F&& f) : work(std::move(f)) {}
  void execute() noexcept {
    try {
      if constexpr (std::is_void_v<Value>) {
        work();
        result.emplace();
      } else {
        result.emplace(work());
      }
    } catch (...) {
      exception = std::current_exception();
    }
  }

  struct Awaiter {
    OffloadJob& job;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) const noexcept { job.waiting = handle; }
    void await_resume() const {
      if (job.exception) std::rethrow_exception(job.exception);
    }
    ~Awaiter() { job.waiting = nullptr; }
  };

  F work;
  std::optional<Stored> result;
  std::exception_ptr exception;
  std::coroutine_handle<> waiting;  // Loop's thread only.
  bool withdrawn = false;           // Loop's thread only. True: `work` does not run.
};

// Posted to the loop when a job has ended or been withdrawn. Allocated in advance: a failure could not be reported.
template <class F>
struct OffloadEnd final : Posted {
  explicit OffloadEnd(std::shared_ptr<OffloadJob<F>> shared) noexcept : job(std::move(shared)) {}
  void run() override {
    if (job->waiting) job->waiting.resume();
  }
  std::shared_ptr<OffloadJob<F>> job;
};

template <class F>
struct OffloadPosted final : Posted {
  OffloadPosted(Loop& owner, const std::shared_ptr<OffloadJob<F>>& job)
      : loop(owner), end(std::make_unique<OffloadEnd<F>>(job)) {}
  void run() override {
    end->job->execute();
    loop.post_owned(end.release());
  }
  Loop& loop;
  std::unique_ptr<OffloadEnd<F>> end;
};

}  // namespace detail

template <class F>
Task<Result<std::invoke_result_t<std::decay_t<F>&>>> Loop::offload(F&& work) {
  return offload_for<std::decay_t<F>>(nullptr, std::stop_token(), std::forward<F>(work));
}

#pragma GCC diagnostic push
#ifndef __clang__  // GCC 12 warns of fields of the coroutine frame if the handler is in an unnamed namespace.
#pragma GCC diagnostic ignored "-Wsubobject-linkage"
#endif
template <class F>
Task<Result<std::invoke_result_t<F&>>> Loop::offload_for(const void* client, std::stop_token token, F work) {
  auto job = std::make_shared<detail::OffloadJob<F>>(std::move(work));
  std::uint64_t ticket = 0;
  if (!token.stop_requested()) {
    std::unique_ptr<detail::OffloadEnd<F>> given_up;
    if (token.stop_possible()) given_up = std::make_unique<detail::OffloadEnd<F>>(job);
    ticket = offload_posted(client, std::make_unique<detail::OffloadPosted<F>>(*this, job));
    if (ticket == 0) co_return fail(ErrorCode::overloaded, detail::offload_refusal(client == nullptr));
    // A caller that is destroyed meanwhile withdraws the work of a client that still waits for a thread.
    struct Withdrawal {
      ~Withdrawal() {
        if (client != nullptr) loop.withdraw_offloaded(client, ticket);
      }
      Loop& loop;
      const void* client;
      std::uint64_t ticket;
    } withdrawal{*this, client, ticket};
    typename detail::OffloadJob<F>::Awaiter finished{*job};
    auto withdraw = [this, client, ticket, &job, &given_up] {
      if (!withdraw_offloaded(client, ticket)) return;
      job->withdrawn = true;
      // Resumes the awaiter as a result would. A destructor that runs the posted work resumes it too.
      post_owned(given_up.release());
    };
    const std::stop_callback watch(token, std::move(withdraw));
    co_await finished;
    withdrawal.client = nullptr;
  }
  if (ticket == 0 || job->withdrawn) {
    co_return fail(ErrorCode::cancelled, "a stop was requested before a thread was free for this work: it has not run");
  }
  if constexpr (std::is_void_v<std::invoke_result_t<F&>>) {
    co_return Result<void>{};
  } else {
    co_return std::move(*job->result);
  }
}

#pragma GCC diagnostic pop
}  // namespace hawser
