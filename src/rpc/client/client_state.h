#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/condition.h"
#include "hawser/client.h"
#include "hawser/scope.h"
#include "negotiate/dial.h"
#include "negotiate/transport_backoff.h"
#include "rpc/client/client_interception.h"
#include "rpc/client/client_session.h"
#include "rpc/client/connection_link.h"
#include "rpc/client/pending_call_queue.h"
#include "rpc/session/limited_log.h"
#include "rpc/session/region_table.h"
#include "transport/network.h"

namespace hawser {

// The implementation of Client: its session, and the attempt to open one.
struct Client::State final : rpc::ClientSession::Owner, detail::LoopUser {
  State(Loop* on, std::shared_ptr<transport::Network> over, ClientOptions with)
      : options(std::move(with)), network(std::move(over)), loop(on), retry(*this) {}
  ~State();

  struct Attempt {
    std::optional<Result<void>> outcome;
  };
  struct Opened {
    std::shared_ptr<rpc::ClientSession> session;
    std::string transport;
    bool authenticated = false;  // Both sides have proved that they agreed on the path.
  };

  Task<Result<void>> connect(std::string to);
  Task<void> attempt(std::shared_ptr<Attempt> own);
  Task<void> connect_once(std::shared_ptr<Attempt> own);
  std::shared_ptr<Attempt> begin_attempt();
  void begin_failback() { scope.spawn(failback()); }
  Task<void> failback();
  Task<Result<Opened>> open_session(std::string to);
  Task<Result<Opened>> open_best(std::string to);
  Task<Result<void>> probe(rpc::ClientSession& session, std::size_t body_bytes, Duration time);
  void use(Opened opened);
  void log_fallbacks();
  void close(std::string_view why);
  void not_connected_any_more(const Error& reason);
  Result<void> acquire_loop();
  void on_loop_end() noexcept override;
  void release_later(std::shared_ptr<rpc::ClientSession> session);

  // rpc::ClientSession::Owner
  bool take_over(rpc::ClientSession& session, detail::CallOperation& operation, bool unsent,
                 const Error& reason) override;
  void on_session_end(rpc::ClientSession& session, const Error& reason) override;
  void on_place() override {
    if (place_freed) place_freed();
  }
  // Makes on_place() follow the end of each intercepted call.
  void watch_interception() {
    if (interception && place_freed) interception->at_end([this] { on_place(); });
  }
  bool fails_over(const Error& reason) const noexcept;

  ClientOptions options;
  const std::shared_ptr<transport::Network> network;
  Loop* loop;  // Null until the first connect() of a client without a given loop, and after the loop has ended.
  bool uses_loop = false;  // Set by connect(): the loop knows that this client uses it.
  bool loop_ending = false;
  std::string address;
  rpc::ConnectionLink link{address, "hawser"};
  std::shared_ptr<rpc::ClientInterception> interception;  // Null without interceptors.
  const std::shared_ptr<detail::RegionTable> regions = std::make_shared<detail::RegionTable>();

  std::function<void()> place_freed;  // For a pool: another call may be possible, or another connection necessary.
  std::shared_ptr<rpc::ClientSession> session;
  std::string transport;  // The transport that carries the session; empty for the stream.
  // Sessions that were replaced, until their last calls are answered.
  std::list<std::shared_ptr<rpc::ClientSession>> finishing;

  std::shared_ptr<negotiate::AttachedTransports> transports;
  negotiate::TransportBackoff health;
  std::vector<TransportFallback> fallback_reasons;
  bool fallbacks_logged = false;
  rpc::LimitedLog log;                                   // For lines about connections.
  std::shared_ptr<rpc::PendingCallQueue> pending_calls;  // Non-null while the connection moves to another transport.
  TransportFallback lost;  // The transport that the connection moves away from, if it is not known to be
                           // broken.
  std::uint64_t failovers = 0;
  MemberTimer<&State::begin_failback> retry;

  // Only one attempt runs at a time. Concurrent callers of connect() share it, and get its outcome even if another
  // attempt has begun by then.
  std::shared_ptr<Attempt> current_attempt;
  std::shared_ptr<exec::Condition> attempted;
  Scope scope;
};

}  // namespace hawser
