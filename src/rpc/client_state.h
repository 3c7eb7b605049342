#pragma once

#include <memory>
#include <optional>
#include <string>

#include "exec/signal.h"
#include "hawser/client.h"
#include "hawser/scope.h"
#include "rpc/client_session.h"
#include "rpc/handshake.h"
#include "transport/network.h"

namespace hawser {

// A Client's inside: the session, and the attempt to get one.
struct Client::State final : rpc::ClientSession::Owner {
  State(Loop* on, std::shared_ptr<transport::Network> over, ClientOptions with)
      : options(std::move(with)), network(std::move(over)), loop(on) {}
  ~State();

  struct Attempt {
    std::optional<Result<void>> outcome;
  };

  Task<Result<void>> connect(std::string to);
  Task<void> attempt(std::shared_ptr<Attempt> own);
  Task<Result<void>> open_session();
  void close();
  void on_session_end(const Error& reason) override;

  const ClientOptions options;
  const std::shared_ptr<transport::Network> network;
  Loop* loop;  // Null until the first connect() of a client that was given none.
  std::string address;
  detail::ClientLink link;
  std::shared_ptr<rpc::ClientSession> session;
  // One attempt at a time; whoever wants to connect meanwhile shares it, and learns its outcome even if another one has
  // begun by then.
  std::shared_ptr<Attempt> attempt_at_hand;
  std::unique_ptr<exec::Signal> attempted;
  Scope scope;
};

}  // namespace hawser
