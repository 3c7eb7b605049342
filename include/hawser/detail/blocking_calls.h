#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/call.h"
#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/detail/thread_call.h"

// The calls and tasks of a BlockingClient that own their arguments. Not for users.
namespace hawser {

namespace detail {

template <auto F>
class SharedCall : public ThreadCall {
 public:
  using Operation = ResultOperation<F, ValueOutcome<F>>;
  using ThreadCall::ThreadCall;
  virtual Operation& operation() noexcept = 0;
};

// A call that owns its arguments.
template <auto F, class... Owned>
class OwningCall : public SharedCall<F> {
  using Arguments = ArgumentsOf<typename MethodFacts<F>::args, Owned&...>;

 public:
  template <class... Given>
  OwningCall(const std::shared_ptr<BlockingState>& state, std::optional<CallOptions> options, Given&&... arguments)
      : SharedCall<F>(state),
        options_(std::move(options)),
        arguments_(std::forward<Given>(arguments)...),
        operation_(this->link(), {},
                   std::apply([](Owned&... one) { return typename Arguments::stored(one...); }, arguments_)) {
    this->set(operation_, options_ ? &*options_ : nullptr);
  }
  typename SharedCall<F>::Operation& operation() noexcept override { return operation_; }

 private:
  std::optional<CallOptions> options_;
  std::tuple<Owned...> arguments_;
  ArgumentOperation<F, ValueOutcome<F>, NoOptions, Owned&...> operation_;
};

template <auto F, class Callback, class... Owned>
class CallingBack final : public OwningCall<F, Owned...> {
 public:
  template <class... Given>
  CallingBack(Callback&& callback, const std::shared_ptr<BlockingState>& state, std::optional<CallOptions> options,
              Given&&... arguments)
      : OwningCall<F, Owned...>(state, std::move(options), std::forward<Given>(arguments)...),
        callback_(std::move(callback)) {}

 private:
  void call_back() noexcept override { callback_(this->operation().take()); }
  Callback callback_;
};

// The task of BlockingClient::run(). The type of the function is not part of it, since GCC 12 warns of coroutines with
// parameters of types without linkage.
template <class T>
class ResultTask : public ThreadTask {
 public:
  using ThreadTask::ThreadTask;
  T take() {
    if (exception_) std::rethrow_exception(exception_);
    return std::move(*result_);
  }

 private:
  struct Using {
    ResultTask* task;
    Task<T> operator()(Client& client) const { return task->use(client); }
  };

  virtual Task<T> use(Client& client) = 0;
  Task<void> begin(ClientPool& pool) override {
    try {
      const Using calling{this};
      result_.emplace(co_await pool.send_request(calling));
    } catch (...) {
      exception_ = std::current_exception();
    }
  }
  void refuse(Error error) override { result_.emplace(std::unexpected(std::move(error))); }
  bool settle() noexcept override {
    if (!result_ && !exception_) refuse(closed_error());
    return true;
  }

  std::optional<T> result_;
  std::exception_ptr exception_;
};

template <class Use>
class UseTask final : public ResultTask<typename std::invoke_result_t<Use&, Client&>::value_type> {
  using Type = typename std::invoke_result_t<Use&, Client&>::value_type;

 public:
  UseTask(const std::shared_ptr<BlockingState>& state, Use& use) : ResultTask<Type>(state), use_(use) {}

 private:
  Task<Type> use(Client& client) override { return use_(client); }
  Use& use_;
};

}  // namespace detail

}  // namespace hawser
