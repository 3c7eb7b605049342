#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "hawser/client.h"

namespace hawser {

struct PoolOptions {
  ClientOptions client = {};
  std::size_t connections_max = 4;
  // Calls in flight on a connection from which on another one is opened, while there are fewer than connections_max.
  std::size_t calls_per_connection = 64;
  Duration idle_timeout = std::chrono::seconds(30);  // A connection unused for so long is closed.
  // After a failed attempt to connect: the pause before the next, doubled each time up to the maximum, and drawn at
  // random between half and all of it, so that clients do not come back all at once.
  Duration backoff_min = std::chrono::milliseconds(20);
  Duration backoff_max = std::chrono::seconds(5);
  std::uint64_t backoff_seed = 0;     // Of the random part. 0: another one for each pool.
  unsigned connect_attempts_max = 3;  // Before a request fails with `unavailable`.
};

// Connections to one server, opened as they are needed, shared by all calls, closed when idle, replaced when lost.
// Belongs to one loop and its thread. Requests that wait for a connection when the pool is destroyed end with an error.
class ClientPool {
 public:
  // On the loop that runs on this thread, or on a given one.
  static std::shared_ptr<ClientPool> create(std::string address, PoolOptions options = {});
  static std::shared_ptr<ClientPool> create(Loop& loop, std::string address, PoolOptions options = {});
  // For tests: over another network.
  static std::shared_ptr<ClientPool> create(Loop& loop, std::shared_ptr<transport::Network> network,
                                            std::string address, PoolOptions options);
  ClientPool(const ClientPool&) = delete;
  ClientPool& operator=(const ClientPool&) = delete;
  ~ClientPool();

  // Runs `use`, which takes a connected Client& and gives a Task<Result<T>>, and gives its result:
  //   auto pending = co_await pool->send_request([](Client& client) { return client.send_request<echo>("hello"); });
  // The client must not be kept. A request that certainly was not executed, because its connection was lost or the
  // server is stopping, is tried once more on another connection.
  template <class Use>
  std::invoke_result_t<detail::Taken<Use>&, Client&> send_request(Use&& use) {
    detail::require_moved_work<Use>();
    return run<detail::Taken<Use>>(detail::Taking<Use>::take(use));
  }

  // One call over any of the connections.
  template <auto F, class... Given>
  Task<typename detail::ValueOutcome<F>::type> call(Given&&... arguments) {
    detail::require_names<detail::MethodFacts<F>, Given...>();
    return call_with<F, std::decay_t<Given>...>(std::forward<Given>(arguments)...);
  }

  std::size_t connections() const noexcept;
  std::size_t calls_in_flight() const noexcept;

 private:
  struct State;
  explicit ClientPool(std::shared_ptr<State> state);
  static bool may_go_elsewhere(const Error& error) noexcept {
    return error.code == ErrorCode::not_sent || error.code == ErrorCode::unavailable;
  }
  // A client that is connected and has room.
  static Task<Result<std::shared_ptr<Client>>> acquire(std::shared_ptr<State> pool);

  template <class Use>
  std::invoke_result_t<Use&, Client&> run(Use use) {
    const std::shared_ptr<State> state = state_;  // The pool may be destroyed meanwhile.
    for (bool again = true;; again = false) {
      auto acquiring = acquire(state);
      Result<std::shared_ptr<Client>> client = co_await std::move(acquiring);
      if (!client) co_return std::unexpected(std::move(client.error()));
      auto using_it = use(**client);
      auto outcome = co_await std::move(using_it);
      if (outcome || !again || !may_go_elsewhere(outcome.error())) co_return outcome;
    }
  }

  template <auto F, class... Given>
  Task<typename detail::ValueOutcome<F>::type> call_with(Given... arguments);

  std::shared_ptr<State> state_;
};

template <auto F, class... Given>
Task<typename detail::ValueOutcome<F>::type> ClientPool::call_with(Given... arguments) {
  auto calling = [&](Client& client) -> Task<typename detail::ValueOutcome<F>::type> {
    auto call = client.call<F>(arguments...);
    co_return co_await std::move(call);
  };
  auto sending = send_request(calling);
  co_return co_await std::move(sending);
}

}  // namespace hawser
