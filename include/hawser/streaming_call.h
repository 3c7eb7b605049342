#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "hawser/call.h"
#include "hawser/stream.h"
#include "hawser/task.h"

namespace hawser {

// The client's side of a call with streams. It reads the items that the handler writes, writes the items that the
// handler reads, and ends with the handler's result. Used on the client's loop.
template <auto F>
class [[nodiscard]] StreamingCall {
  using Facts = detail::MethodFacts<F>;

 public:
  using Outcome = detail::StreamsOutcome<F>;
  using Operation = detail::ResultOperation<F, Outcome>;
  explicit StreamingCall(std::unique_ptr<Operation> operation) noexcept : operation_(std::move(operation)) {}

  // Receives the items of the handler's Writer<T>. Call it before finish(). The reader may be used after finish() and
  // may outlive this object.
  auto reader() noexcept {
    using Of = Reader<typename Facts::outgoing>;
    return operation_ && operation_->stream() != nullptr ? Of(*operation_->stream()) : Of();
  }
  // Sends items to the handler's Reader<T>. Call end() on it after the last item. Call writer() before finish().
  auto writer() noexcept {
    using Of = Writer<typename Facts::incoming>;
    return operation_ && operation_->stream() != nullptr ? Of(*operation_->stream()) : Of();
  }

  // Ends this side's stream and waits for the handler's result. Call one of the two once. The second also returns what
  // the server has sent beside the result: Call::with_outcome().
  Task<typename Outcome::type> finish() {
    end_items();
    co_return co_await detail::SentCallAwaiter<Operation, std::unique_ptr<Operation>>{std::move(operation_)};
  }
  Task<typename detail::EndedOutcome<F>::type> finish_with_outcome() {
    end_items();
    const std::unique_ptr<Operation> operation = std::move(operation_);
    typename detail::EndedOutcome<F>::type ended(
        co_await detail::SentCallAwaiter<Operation, Operation*>{operation.get()});
    if (operation) ended.outcome = operation->take_outcome();
    co_return ended;
  }

 private:
  void end_items() {
    if constexpr (!std::is_same_v<typename Facts::incoming, detail::NoStream>) {
      if (operation_ && operation_->stream() != nullptr) operation_->stream()->end();
    }
  }

  std::unique_ptr<Operation> operation_;
};

}  // namespace hawser
