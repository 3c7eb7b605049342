#pragma once

#include <coroutine>
#include <memory>
#include <utility>

#include "hawser/detail/call_operation.h"
#include "hawser/detail/method_facts.h"
#include "hawser/reply.h"

namespace hawser {

namespace detail {

template <class Awaited>
consteval void require_moved_call() {
  static_assert(sizeof(Awaited) == 0,
                "hawser: a call is awaited once, which uses it up: write `co_await std::move(call)` for a named one");
}

}  // namespace detail

// A call that is sent when it is awaited. `co_await` gives a Result of the handler's result, with owning types in place
// of views. Arguments that are lvalues must stay valid until the call has ended. Await it in the expression that
// creates it, as in `co_await client.call<f>(x)`. Errors: those of ErrorCode. Thread: the client's loop.
template <auto F, class Options, class... Given>
class [[nodiscard("a call is made by awaiting it")]] Call {
  using Stored = typename detail::ArgumentsOf<typename detail::MethodFacts<F>::args, Given...>::stored;

  template <class Outcome>
  class Awaiter {
   public:
    Awaiter(detail::ClientLink& link, Options&& options, Stored&& arguments, MutableBytes memory)
        : operation_(link, std::move(options), std::move(arguments)) {
      operation_.set_memory(memory);
      operation_.set_arguments_last();  // The awaiting expression keeps the arguments alive.
    }
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> waiting) {
      operation_.start();
      return operation_.wait(waiting);
    }
    typename Outcome::type await_resume() { return operation_.take(); }

   private:
    detail::ArgumentOperation<F, Outcome, Options, Given...> operation_;
  };

  // A call with another result than the value.
  template <class Outcome>
  class Whole {
   public:
    Whole(Call&& call, MutableBytes memory) : call_(std::move(call)), memory_(memory) {}
    auto operator co_await() && {
      return Awaiter<Outcome>(call_.use_up(), std::move(call_.options_), std::move(call_.arguments_), memory_);
    }
    auto operator co_await() & {
      detail::require_moved_call<Whole>();
      return std::move(*this).operator co_await();
    }

   private:
    Call call_;
    MutableBytes memory_;
  };

 public:
  Call(detail::ClientLink& link, Options options, Stored&& arguments)
      : link_(&link), options_(std::move(options)), arguments_(std::move(arguments)) {}
  Call(Call&& other) noexcept
      : link_(std::exchange(other.link_, nullptr)),
        options_(std::move(other.options_)),
        arguments_(std::move(other.arguments_)) {}

  auto operator co_await() && {
    return Awaiter<detail::ValueOutcome<F>>(use_up(), std::move(options_), std::move(arguments_), MutableBytes());
  }
  auto operator co_await() & {
    detail::require_moved_call<Call>();
    return std::move(*this).operator co_await();
  }

  // Makes the call return a Result<Reply<R>>: the value read in place, the attachment and the metadata. R is the
  // handler's result type, except that std::string_view replaces std::string, and std::span<const E> replaces a
  // std::vector of numbers or enumerations.
  [[nodiscard]] auto reply() && { return Whole<detail::ReplyOutcome<F>>(used_up(), {}); }

  // Like reply(), but the payload is received directly into `memory`. The payload is the sequences of 8 KiB and more,
  // in order, followed by the attachment. `memory` must stay valid until the call has ended, and as long as the views
  // of the reply are used: they refer to it.
  // Shorter sequences stay in the message. A result that is a single string_view or span, without an attachment, is
  // placed in `memory` at any size. If there are several sequences, each begins at a multiple of 8 bytes. A payload
  // that does not fit fails the call with limit_exceeded.
  [[nodiscard]] auto into(MutableBytes memory) && { return Whole<detail::ReplyOutcome<F>>(used_up(), memory); }

  // Makes the call return an EndedCall: the Result, and beside it the CallOutcome, also of a call that failed. If an
  // interceptor repeats the call, the outcome is that of its last attempt.
  //   auto ended = co_await stub.Order(request).with_outcome();
  //   if (!ended.result) log(ended.result.error().text, ended.outcome.details);
  [[nodiscard]] auto with_outcome() && { return Whole<detail::EndedOutcome<F>>(used_up(), {}); }

 private:
  detail::ClientLink& use_up() noexcept {
    if (link_ == nullptr) [[unlikely]]
      detail::awaited_again();
    return *std::exchange(link_, nullptr);
  }

  Call used_up() { return Call(use_up(), std::move(options_), std::move(arguments_)); }

  detail::ClientLink* link_;  // Null once the call has been awaited or moved from.
  [[no_unique_address]] Options options_;
  Stored arguments_;
};

namespace detail {

// Awaits a call whose request has been sent. `Pointer` refers to its operation, or is null.
template <class Operation, class Pointer>
struct SentCallAwaiter {
  Pointer operation;
  bool await_ready() const noexcept { return operation == nullptr || operation->done(); }
  bool await_suspend(std::coroutine_handle<> waiting) { return operation->wait_later(waiting); }
  typename Operation::Type await_resume() {
    if (operation == nullptr) [[unlikely]] {
      return fail(ErrorCode::invalid_argument, "this call has been awaited, finished or moved from: await it once");
    }
    return operation->take();
  }
};

}  // namespace detail

// A call whose request has been sent. `co_await std::move(pending)` gives the Result of the handler. Await it once.
// Destroying it cancels the call.
template <auto F>
class [[nodiscard]] PendingCall {
 public:
  using Outcome = detail::ValueOutcome<F>;
  using Operation = detail::ResultOperation<F, Outcome>;
  explicit PendingCall(std::unique_ptr<Operation> operation) noexcept : operation_(std::move(operation)) {}

  auto operator co_await() && noexcept {
    return detail::SentCallAwaiter<Operation, std::unique_ptr<Operation>>{std::move(operation_)};
  }
  auto operator co_await() & {
    detail::require_moved_call<PendingCall>();
    return std::move(*this).operator co_await();
  }

 private:
  std::unique_ptr<Operation> operation_;
};

}  // namespace hawser
