#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "hawser/call_task.h"
#include "hawser/client.h"

namespace hawser {

namespace detail {
struct PoolAccess;
}  // namespace detail

struct PoolOptions {
  ClientOptions client = {};
  std::size_t connections_max = 4;
  // With this number of calls in flight on every connection, another connection is opened, up to connections_max. The
  // connections then take more calls, up to ClientOptions::calls_in_flight_max and the number that the server announces
  // (ServerOptions::calls_per_connection_max). Further calls wait until a call has ended, in the order in which they
  // came.
  std::size_t calls_per_connection = 64;
  // Calls that may wait for a connection at the same time. Beyond this number a call fails with `overloaded`.
  std::size_t calls_waiting_max = 65'536;
  // A call that has waited this long for a connection fails with `overloaded`. The timeout of a call, which is
  // ClientOptions::call_timeout by default, ends its wait with `deadline_exceeded`. `forever`: none.
  Duration wait_max = std::chrono::seconds(30);
  Duration idle_timeout = std::chrono::seconds(30);  // A connection that is unused for this time is closed.
  // Pause after a failed attempt to connect. It doubles with each failure up to the maximum. The actual pause is a
  // random time between half of it and all of it, so that clients do not reconnect at the same time.
  Duration backoff_min = std::chrono::milliseconds(20);
  Duration backoff_max = std::chrono::seconds(5);
  std::uint64_t backoff_seed = 0;     // Seed of the random part. 0: each pool uses a different one.
  unsigned connect_attempts_max = 3;  // Attempts before a request fails with `unavailable`.
};

// A set of connections to one server. Connections are opened when they are needed, shared by all calls, closed when
// they are idle, and replaced when they are lost. A pool belongs to one loop and its thread. When it is destroyed, its
// calls and streams end with an error, wherever they are, as those of a Client.
//
// Its call() makes one call over any of the connections: `Result<R> reply = co_await pool->call<f>(args...)`. See
// CallTask for reply(), into() and with_outcome(). CallOptions may precede the arguments, which are copied. A call that
// was not executed is made once more, as with send_request(). The timeout and the token of the call also end its wait
// for a connection, and the timeout limits both attempts together. open() begins a call with streams; its task
// completes when the request has been sent. The stream belongs to the connection that was selected and ends with it.
// Only the opening is made once more: nothing of the stream has been sent or received then.
class ClientPool : public detail::TaskCaller<ClientPool> {
 public:
  // The pool belongs to the loop that runs on the calling thread, or to `loop`.
  static std::shared_ptr<ClientPool> create(std::string address, PoolOptions options = {});
  static std::shared_ptr<ClientPool> create(Loop& loop, std::string address, PoolOptions options = {});
  ClientPool(const ClientPool&) = delete;
  ClientPool& operator=(const ClientPool&) = delete;
  ~ClientPool();

  // Calls `use` with a connected Client& and returns its result. `use` returns a Task<Result<T>>:
  //   auto pending = co_await pool->send_request([](Client& client) { return client.send_request<echo>("hello"); });
  // `use` must not keep the client. If its error shows that the request was not executed, because its connection was
  // lost or the server is stopping, `use` is called once more with another connection.
  template <class Use>
  Task<typename std::invoke_result_t<std::decay_t<Use>&, Client&>::value_type> send_request(Use&& use) {
    return run<typename std::invoke_result_t<std::decay_t<Use>&, Client&>::value_type, std::decay_t<Use>>(
        state_, std::forward<Use>(use));
  }

  // Number of open connections, and number of calls in flight on all of them.
  std::size_t connections() const noexcept;
  std::size_t calls_in_flight() const noexcept;

 private:
  friend class detail::BlockingSite;
  friend struct detail::PoolAccess;
  friend class detail::TaskCaller<ClientPool>;
  friend class detail::DestructionNotice;
  struct State;
  explicit ClientPool(std::shared_ptr<State> state);
  static std::shared_ptr<ClientPool> create(Loop& loop, std::shared_ptr<transport::Network> network,
                                            std::string address, PoolOptions options);
  static bool may_go_elsewhere(const Error& error) noexcept {
    return error.code == ErrorCode::not_sent || error.code == ErrorCode::unavailable;
  }
  // One call with all its attempts, whose timeout counts from the first acquire().
  struct Limits {
    CallOptions options;
    bool streams = false;
    std::optional<Time> deadline = {};  // Set by the first acquire(). Time::max(): none.
  };
  // Waits for a client that is connected and accepts another call. The callers are served in the order in which they
  // came. With `limits`, the wait also ends with deadline_exceeded, `cancelled` or `overloaded`, and options.timeout is
  // what is left for the attempt. Without (null), the caller bounds its waits itself.
  static Task<Result<std::shared_ptr<Client>>> acquire(std::shared_ptr<State> pool, Limits* limits = nullptr);
  // Null if no client accepts another call, or if other callers wait already.
  static std::shared_ptr<Client> try_acquire(State& pool);

  // The state outlives the pool, which may be destroyed meanwhile. `use` returns an awaitable of R.
  template <class R, class Use>
  static Task<R> run(std::shared_ptr<State> state, Use use) {
    Limits limits{.options = {.timeout = forever}};
    for (bool again = true;; again = false) {
      Result<std::shared_ptr<Client>> client = co_await acquire(state, &limits);
      if (!client) co_return std::unexpected(std::move(client.error()));
      auto outcome = co_await use(**client);
      const Error* const error = detail::error_of_call(outcome);
      if (error == nullptr || !again || !may_go_elsewhere(*error)) co_return outcome;
    }
  }
  // `use` receives the options of the attempt, too.
  template <class R, class Use>
  static Task<R> run_within(std::shared_ptr<State> state, Limits limits, Use use) {
    for (bool again = true;; again = false) {
      Result<std::shared_ptr<Client>> client = co_await acquire(state, &limits);
      if (!client) co_return std::unexpected(std::move(client.error()));
      auto outcome = co_await use(**client, std::as_const(limits.options));
      const Error* const error = detail::error_of_call(outcome);
      if (error == nullptr || !again || !may_go_elsewhere(*error)) co_return outcome;
    }
  }

  template <auto F, class... Given>
  struct PooledCall : detail::PooledFrame {
    template <class... From>
    explicit PooledCall(std::shared_ptr<State> on, CallOptions with, From&&... from)
        : state(std::move(on)), options(std::move(with)), given(std::forward<From>(from)...) {}
    template <class Outcome>
    static Task<typename Outcome::type> run(std::unique_ptr<PooledCall> call, MutableBytes memory) {
      std::shared_ptr<State> state = call->state;
      Limits limits{.options = call->options};
      return ClientPool::run_within<typename Outcome::type>(
          std::move(state), std::move(limits),
          [kept = std::move(call), memory](Client& client, const CallOptions& attempt) {
            return std::apply(
                [&](auto&... one) { return detail::call_by<Outcome, F>(client, memory, attempt, one...); },
                kept->given);
          });
    }
    std::shared_ptr<State> state;
    CallOptions options;
    std::tuple<Given...> given;
  };

  template <auto F, class... Given>
  auto make_call(CallOptions options, Given&&... arguments) {
    using Kept = PooledCall<F, std::decay_t<Given>...>;
    return CallTask<F, Kept>(std::make_unique<Kept>(state_, std::move(options), std::forward<Given>(arguments)...));
  }
  template <auto F, class... Given>
  Task<Result<StreamingCall<F>>> make_open(CallOptions options, Given&&... arguments) {
    return run_within<Result<StreamingCall<F>>>(
        state_, Limits{.options = std::move(options), .streams = true},
        [given = std::tuple<std::decay_t<Given>...>(std::forward<Given>(arguments)...)](Client& client,
                                                                                        const CallOptions& attempt) {
          return std::apply([&](const auto&... one) { return client.open<F>(attempt, one...); }, given);
        });
  }
  std::stop_token destruction_token() { return destruction_.token(); }

  detail::DestructionNotice destruction_;
  std::shared_ptr<State> state_;
};

}  // namespace hawser
