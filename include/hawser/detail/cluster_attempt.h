#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/naming_policy.h"
#include "hawser/reply.h"
#include "hawser/service_config.h"
#include "hawser/task.h"
#include "hawser/time.h"

namespace hawser {
struct NamingRoutes;
}

namespace hawser::detail {

// One attempt of a call: chooses an endpoint, and another one if the call certainly was not sent there.
class ClusterAttempt {
 public:
  struct State;
  // The cluster of all attempts of a call, and their options.
  struct Route {
    std::shared_ptr<State> cluster;
    const MethodConfig* config = nullptr;  // May be null.
    // Metadata that is the key of the call. Null: that of the policy of the cluster.
    const std::vector<NamingPolicy::Key>* keys = nullptr;
    // The pointers refer into these. The name may get other ones meanwhile.
    std::shared_ptr<const ServiceConfig> service_config;
    std::shared_ptr<const NamingRoutes> routes;
  };
  // Fails if no route of the name matches the call.
  static Result<Route> choose_route(const std::shared_ptr<State>& state, std::string_view method,
                                    const CallOptions& options);

  // `route` and `method` outlive the attempt.
  ClusterAttempt(const Route& route, CallOptions options, std::string_view method);
  ClusterAttempt(ClusterAttempt&&) noexcept;
  ~ClusterAttempt();

  // Chooses again if the name had no routes when `route` was chosen, and has some now. The options are those of the
  // next attempt.
  static Result<void> follow_routes(Route& route, const std::shared_ptr<State>& state, std::string_view method,
                                    const CallOptions& options);

  // True if the name has a list, or the reason why it has none, unless calls of the method wait for ready endpoints.
  static bool knows_list(const State& state, std::string_view method);
  // Waits until that is true or the call is over. The time is taken from the timeout of the options.
  static Task<void> await_list(State& state, std::string_view method, CallOptions& options);

  // Chooses an endpoint with a connection that accepts a call. False if there is none now: begin() waits.
  bool try_begin();
  bool begun() const noexcept { return client_ != nullptr; }
  Task<Result<void>> begin();
  Client& client() noexcept { return *client_; }
  // The timeout is what is left of the attempt.
  const CallOptions& options() const noexcept { return options_; }
  // Ends the call at the chosen endpoint. True if it shall be made at another one.
  bool end(const Error* error);
  // True if the call may have copies (HedgeOptions).
  bool hedges() const noexcept;

 private:
  friend class HedgedCall;
  struct Node;
  struct Tried;
  const HedgeOptions& hedging() const noexcept;
  // The endpoint where the call is or was made. Null before, and after the end of a call that has no copies.
  const std::shared_ptr<Node>& node() const noexcept { return node_ != nullptr ? node_ : used_; }
  void avoid(std::shared_ptr<Node> node);
  // The call is withdrawn because a copy of it had its result earlier.
  void lose();
  std::optional<Error> ended() const;
  Task<Result<void>> begin_at(std::shared_ptr<Node> node);
  Result<void> refused() const;
  void take(std::shared_ptr<Node> node, std::shared_ptr<Client> client);
  // Reports the end of the call at the chosen endpoint.
  enum class Ending : std::uint8_t { result, withdrawn, slower_than_a_copy };
  void leave(Ending ending, const Error* error);

  std::shared_ptr<State> state_;
  CallOptions options_;
  std::string_view method_;
  const Route* route_;
  Time deadline_;                   // Time::max(): none.
  std::shared_ptr<Node> node_;      // The chosen endpoint, while the call is in flight there.
  std::shared_ptr<Client> client_;  // Its connection.
  Time began_{};
  bool asked_ = false;             // The policy of the name was asked whether it drops the call.
  const char* refusal_ = nullptr;  // Why the policy of the name does not permit the call. Null: it does.
  std::unique_ptr<Tried> tried_;   // Null until an endpoint is avoided.
  std::shared_ptr<Node> used_;     // The endpoint at which a call that may have copies ended.
};

}  // namespace hawser::detail
