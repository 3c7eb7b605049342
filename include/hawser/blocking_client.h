#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/background_loops.h"
#include "hawser/call.h"
#include "hawser/client.h"
#include "hawser/client_pool.h"
#include "hawser/detail/blocking_calls.h"
#include "hawser/error.h"

// Calls from threads that run no loop. Not part of hawser.h.
namespace hawser {

struct BlockingOptions {
  // Each loop has a pool of connections with these options.
  PoolOptions pool = {};
  // Loops that several clients share. Null: this client starts its own, with `background`.
  std::shared_ptr<BackgroundLoops> loops = {};
  BackgroundOptions background = {};
};

template <auto F>
class StartedCall;

// Calls one server from any thread, also from several threads at once. Loops in the background send the requests and
// receive the replies. Each loop keeps a ClientPool: connections are opened when they are needed, shared by all
// threads, stay open between calls, and are replaced when they are lost. A call whose error shows that it was not
// executed, because its connection was lost or the server is stopping, is sent once more over another connection.
//
// A thread that runs a loop, such as one that executes a handler or a coroutine, must not block: call(), connect(),
// run() and StartedCall::get() fail there with invalid_argument. Offloaded handlers may block.
//
// In a child process made by fork(), calls fail with invalid_argument: the loops belong to the parent process. Make
// another BlockingClient there.
class BlockingClient {
 public:
  // Connects with the first call. Address: as for Client::connect(). Throws std::system_error if the threads of the
  // background loops cannot be started.
  explicit BlockingClient(std::string address, BlockingOptions options = {});
  BlockingClient(const BlockingClient&) = delete;
  BlockingClient& operator=(const BlockingClient&) = delete;
  // Like close().
  ~BlockingClient();

  // Waits until there is a connection. Fails with the reason if there is none after PoolOptions::connect_attempts_max.
  Result<void> connect();

  // Ends the connections. Calls that other threads have begun end with an error: unavailable or not_sent if they were
  // not executed, otherwise outcome_unknown. Later calls fail with unavailable. Waits until the connections have ended;
  // a thread that runs a loop does not wait.
  void close();

  HAWSER_ERROR_IF_BEGIN
  // Calls handler F of the server and waits for the result. See CallOptions::timeout; the wait for a connection counts.
  template <auto F, class... Given>
    requires(!detail::options_first<Given...>)
  auto call(Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    return call_and_wait<F>(nullptr, arguments...);
  }
  template <auto F, class... Given>
  auto call(const CallOptions& options, Given&&... arguments) HAWSER_FITTING_CONSTANTS {
    return call_and_wait<F>(&options, arguments...);
  }
  template <detail::WrongFunction F, class... Given>
    requires(F.wrong)
  void call(Given&&...) = delete;

  // Begins a call. It is sent although nobody waits for it. Arguments are copied or moved; memory that views refer to
  // must stay valid until the call has ended. Any thread, also one that runs a loop.
  template <auto F, class... Given>
    requires(!detail::options_first<Given...>)
  StartedCall<F> start(Given&&... arguments) HAWSER_FITTING_CONSTANTS;
  template <auto F, class... Given>
  StartedCall<F> start(CallOptions options, Given&&... arguments) HAWSER_FITTING_CONSTANTS;
  template <detail::WrongFunction F, class... Given>
    requires(F.wrong)
  void start(Given&&...) = delete;

  // Like start(), but calls `callback` with the Result when the call has ended. It runs on the thread of a background
  // loop and must not block or throw: an exception ends the process. It may begin other calls and destroy this client.
  template <auto F, class Callback, class... Given>
    requires(!detail::options_first<Given...>)
  void then(Callback callback, Given&&... arguments) HAWSER_FITTING_CONSTANTS;
  template <auto F, class Callback, class... Given>
  void then(Callback callback, CallOptions options, Given&&... arguments) HAWSER_FITTING_CONSTANTS;
  template <detail::WrongFunction F, class... Given>
    requires(F.wrong)
  void then(Given&&...) = delete;
  HAWSER_ERROR_IF_END

  // Runs `use` on a background loop with a connected Client and waits for its result. `use` takes a Client& and returns
  // a Task<Result<T>>: it may use streams, attachments and everything else that coroutines can. See
  // ClientPool::send_request(). An exception that leaves `use` or its task is thrown here.
  template <class Use>
  auto run(Use use) -> typename std::invoke_result_t<Use&, Client&>::value_type;

 private:
  template <auto F, class... Given>
  typename detail::ValueOutcome<F>::type call_and_wait(const CallOptions* options, Given&... arguments) {
    static_assert(!detail::MethodFacts<F>::streams,
                  "hawser: this handler has streams: use BlockingClient::run() and Client::open()");
    if (std::optional<Error> refused = detail::ThreadWork::refuse_to_block("call"))
      return std::unexpected(std::move(*refused));
    detail::ThreadCall call(state_);
    // The arguments are the caller's, who waits.
    detail::ArgumentOperation<F, detail::ValueOutcome<F>, detail::NoOptions, Given&...> operation(
        call.link(), {}, Stored<F, Given&...>(arguments...));
    call.set(operation, options);
    call.submit();
    if (std::optional<Error> failed = call.wait()) return std::unexpected(std::move(*failed));
    return operation.take();
  }
  template <auto F, class... Given>
  using Stored = typename detail::ArgumentsOf<typename detail::MethodFacts<F>::args, Given...>::stored;

  std::shared_ptr<detail::BlockingState> state_;
};

// A call that was begun by BlockingClient::start(). Its result is taken once: by get(), by co_await on any loop, or by
// then(). Destroying it before the end cancels the call. It may outlive the client. Used by one thread at a time.
template <auto F>
class [[nodiscard]] StartedCall {
 public:
  using Type = typename detail::ValueOutcome<F>::type;
  explicit StartedCall(std::shared_ptr<detail::SharedCall<F>> call) noexcept : call_(std::move(call)) {}
  StartedCall(StartedCall&&) noexcept = default;
  StartedCall& operator=(StartedCall&& other) noexcept {
    if (this != &other) {
      cancel();
      call_ = std::move(other.call_);
    }
    return *this;
  }
  ~StartedCall() { cancel(); }

  // True if the call has ended: get() does not wait. True after get(), too.
  bool done() const noexcept { return call_ == nullptr || call_->done(); }
  // Waits for at most `limit`. Returns done(). Blocks any thread, also one that runs a loop.
  bool wait_for(Duration limit) { return call_ == nullptr || call_->wait_for(limit); }
  // Waits for the result.
  Type get() {
    if (call_ != nullptr && !call_->done()) {
      if (std::optional<Error> refused = detail::ThreadWork::refuse_to_block("get"))
        return std::unexpected(std::move(*refused));
      if (std::optional<Error> failed = call_->wait()) return std::unexpected(std::move(*failed));
    }
    return take();
  }
  // `co_await call`: the coroutine waits, and continues on its own loop. This object must exist until then. Fails with
  // invalid_argument on a thread that runs no loop.
  auto operator co_await() {
    struct End : detail::CallEnd {
      explicit End(StartedCall& call) : CallEnd(call.call_), started(call) {}
      Type await_resume() {
        if (this->refused_) return std::unexpected(std::move(*this->refused_));
        return started.take();
      }
      StartedCall& started;
    };
    return End(*this);
  }
  // Calls `callback` with the Result when the call has ended, by the rules of BlockingClient::then(). cancel() and the
  // destructor do not reach the call any more; CallOptions::token does.
  template <class Callback>
  void then(Callback callback) {
    if (call_ == nullptr) return callback(take());
    const auto call = std::exchange(call_, nullptr);
    const auto kept = std::make_shared<Callback>(std::move(callback));
    std::optional<Error> failed =
        detail::ThreadCall::at_end(call, [call, kept] { (*kept)(Type(call->operation().take())); });
    if (failed) (*kept)(Type(std::unexpected(std::move(*failed))));
  }
  // Ends the call with `cancelled`, unless it has ended. The handler's token is stopped.
  void cancel() {
    if (call_ != nullptr && !call_->done()) detail::ThreadCall::cancel(call_);
  }

 private:
  Type take() {
    if (call_ == nullptr) {
      return fail(ErrorCode::invalid_argument,
                  "this StartedCall has no result: it was moved from, or get() was called before");
    }
    const auto call = std::exchange(call_, nullptr);
    return call->operation().take();
  }

  std::shared_ptr<detail::SharedCall<F>> call_;
};

// Begins calls of a BlockingClient, for stubs of services: each method returns a StartedCall. The client must outlive
// the stub.
//   hawser::StartingClient starting(client);
//   weather::Station::Stub station(starting);
//   auto now = station.Now(place);
class StartingClient {
 public:
  explicit StartingClient(BlockingClient& client) noexcept : client_(client) {}
  template <auto F, class... Given>
  StartedCall<F> call(Given&&... given) const {
    return client_.start<F>(std::forward<Given>(given)...);
  }

 private:
  BlockingClient& client_;
};

template <auto F, class... Given>
  requires(!detail::options_first<Given...>)
StartedCall<F> BlockingClient::start(Given&&... arguments) {
  auto call = std::make_shared<detail::OwningCall<F, std::decay_t<Given>...>>(state_, std::nullopt,
                                                                              std::forward<Given>(arguments)...);
  detail::ThreadCall::submit_shared(call);
  return StartedCall<F>(std::move(call));
}
template <auto F, class... Given>
StartedCall<F> BlockingClient::start(CallOptions options, Given&&... arguments) {
  auto call = std::make_shared<detail::OwningCall<F, std::decay_t<Given>...>>(state_, std::move(options),
                                                                              std::forward<Given>(arguments)...);
  detail::ThreadCall::submit_shared(call);
  return StartedCall<F>(std::move(call));
}
template <auto F, class Callback, class... Given>
  requires(!detail::options_first<Given...>)
void BlockingClient::then(Callback callback, Given&&... arguments) {
  detail::ThreadCall::submit_shared(std::make_shared<detail::CallingBack<F, Callback, std::decay_t<Given>...>>(
      std::move(callback), state_, std::nullopt, std::forward<Given>(arguments)...));
}
template <auto F, class Callback, class... Given>
void BlockingClient::then(Callback callback, CallOptions options, Given&&... arguments) {
  detail::ThreadCall::submit_shared(std::make_shared<detail::CallingBack<F, Callback, std::decay_t<Given>...>>(
      std::move(callback), state_, std::move(options), std::forward<Given>(arguments)...));
}

template <class Use>
auto BlockingClient::run(Use use) -> typename std::invoke_result_t<Use&, Client&>::value_type {
  if (std::optional<Error> refused = detail::ThreadWork::refuse_to_block("run"))
    return std::unexpected(std::move(*refused));
  detail::UseTask<Use> task(state_, use);
  task.submit();
  if (std::optional<Error> failed = task.wait()) return std::unexpected(std::move(*failed));
  return task.take();
}

}  // namespace hawser
