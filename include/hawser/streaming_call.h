#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "hawser/call.h"
#include "hawser/stream.h"
#include "hawser/task.h"

namespace hawser {

// A call with streams, on the client: reads what the handler writes, writes what it reads, and ends with its result.
template <auto F>
class [[nodiscard]] StreamingCall {
  using Facts = detail::MethodFacts<F>;

 public:
  using Operation = detail::ResultOperation<F, detail::ValueOutcome<F>>;
  explicit StreamingCall(std::unique_ptr<Operation> operation) noexcept : operation_(std::move(operation)) {}

  // What the handler's Writer<T> sends. Before finish(); may be used after it, and longer than this.
  auto reader() noexcept {
    using Of = Reader<typename Facts::outgoing>;
    return operation_ && operation_->stream() != nullptr ? Of(*operation_->stream()) : Of();
  }
  // To the handler's Reader<T>; end() it when nothing more comes. Before finish().
  auto writer() noexcept {
    using Of = Writer<typename Facts::incoming>;
    return operation_ && operation_->stream() != nullptr ? Of(*operation_->stream()) : Of();
  }

  // Ends this side's stream and waits for the handler's result. Once.
  Task<typename Operation::Type> finish() {
    if constexpr (!std::is_same_v<typename Facts::incoming, detail::NoStream>) {
      if (operation_ && operation_->stream() != nullptr) operation_->stream()->end();
    }
    auto pending = PendingCall<F>(std::move(operation_));
    co_return co_await std::move(pending);
  }

 private:
  std::unique_ptr<Operation> operation_;
};

}  // namespace hawser
