#pragma once

#include <coroutine>
#include <memory>
#include <utility>

#include "hawser/detail/call_operation.h"
#include "hawser/detail/method_facts.h"
#include "hawser/reply.h"

namespace hawser {

// A call about to be made: `co_await` sends it and gives a Result of the handler's result, with owners in place of
// views. Arguments given as lvalues must stay valid until then. Await it at once, as in
// `co_await client.call<f>(x)`.
template <auto F, class Options, class... Given>
class [[nodiscard("a call is made by awaiting it")]] Call {
  using Stored = typename detail::ArgumentsOf<typename detail::MethodFacts<F>::args, Given...>::stored;

  template <class Outcome>
  class Awaiter {
   public:
    Awaiter(detail::ClientLink& link, Options&& options, Stored&& arguments, MutableBytes memory)
        : operation_(link, std::move(options), std::move(arguments)) {
      operation_.set_memory(memory);
      operation_.set_arguments_last();  // Whoever awaits in place holds them.
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

  // A call whose result is the whole reply.
  class Whole {
   public:
    Whole(Call&& call, MutableBytes memory) : call_(std::move(call)), memory_(memory) {}
    auto operator co_await() && {
      return Awaiter<detail::ReplyOutcome<F>>(*call_.link_, std::move(call_.options_), std::move(call_.arguments_),
                                              memory_);
    }

   private:
    Call call_;
    MutableBytes memory_;
  };

 public:
  Call(detail::ClientLink& link, Options options, Stored&& arguments)
      : link_(&link), options_(std::move(options)), arguments_(std::move(arguments)) {}

  auto operator co_await() && {
    return Awaiter<detail::ValueOutcome<F>>(*link_, std::move(options_), std::move(arguments_), MutableBytes());
  }

  // Gives a Result<Reply<R>>: the value read in place, the attachment, the metadata. R is the handler's result, but
  // std::string_view for std::string, and std::span<const E> for a std::vector of numbers or enumerations.
  [[nodiscard]] Whole reply() && { return Whole(std::move(*this), {}); }

  // The same, with the payload (sequences of 8 KiB and more, in order, then the attachment) received straight into
  // `memory`, which must stay valid until the call has ended and then holds what the reply's views show. Shorter
  // sequences stay in the message; but a result that is one string_view or span, with no attachment, is in `memory` at
  // any size. What does not fit is an error (limit_exceeded). Several sequences begin at multiples of 8 each.
  [[nodiscard]] Whole into(MutableBytes memory) && { return Whole(std::move(*this), memory); }

 private:
  detail::ClientLink* link_;
  [[no_unique_address]] Options options_;
  Stored arguments_;
};

// A request that has been sent; `co_await std::move(pending)` gives the Result of the reply. Dropping it cancels the
// call.
template <auto F>
class [[nodiscard]] PendingCall {
 public:
  using Operation = detail::ResultOperation<F, detail::ValueOutcome<F>>;
  explicit PendingCall(std::unique_ptr<Operation> operation) noexcept : operation_(std::move(operation)) {}

  auto operator co_await() && noexcept {
    struct Awaiter {
      std::unique_ptr<Operation> operation;
      bool await_ready() const noexcept { return operation == nullptr || operation->done(); }
      bool await_suspend(std::coroutine_handle<> waiting) { return operation->wait(waiting); }
      typename Operation::Type await_resume() {
        if (operation == nullptr) [[unlikely]] {
          return fail(ErrorCode::invalid_argument, "this call has been awaited, finished or moved from: await it once");
        }
        return operation->take();
      }
    };
    return Awaiter{std::move(operation_)};
  }

 private:
  std::unique_ptr<Operation> operation_;
};

}  // namespace hawser
