#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/condition.h"
#include "hawser/client.h"
#include "hawser/detail/loop_access.h"
#include "hawser/scope.h"
#include "rpc/client/client_interception.h"
#include "rpc/client/connection_link.h"
#include "rpc/session/region_table.h"
#include "transport/network.h"

namespace hawser::rpc {

// The implementation of Client, whatever the protocol: its options, its loop, its interceptors, and its attempt to
// connect. A derived class has the sessions of a protocol. Loop's thread only.
struct ClientState : detail::LoopUser {
  // `protocol` is the name for interceptors, a literal.
  ClientState(Loop* on, std::shared_ptr<transport::Network> over, ClientOptions with, std::string_view protocol);
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;
  virtual ~ClientState() = default;
  // Called once, before the destructor.
  void end();

  static Error not_connected();

  Task<Result<void>> connect(std::string to);
  // Ends the connection and the attempt to connect.
  void close(std::string_view why);
  void add_interceptor(std::shared_ptr<detail::Interceptor<OutgoingCall>> interceptor);
  // `call` is called when the connection was full or moving, and another call may be possible, or another connection
  // necessary.
  void at_place(std::function<void()> call);

  // ---- The connection ----
  virtual bool has_session() const noexcept = 0;
  // Without those whose interceptors wait.
  virtual std::size_t calls_in_flight() const noexcept = 0;
  // Calls that the connection accepts beside those in flight. 0 without a connection.
  virtual std::size_t free_places() const noexcept = 0;
  virtual Time last_used() const noexcept = 0;
  virtual bool going_away() const noexcept = 0;
  virtual std::string_view transport_name() const noexcept = 0;
  virtual Task<Result<Duration>> ping() = 0;
  // ClientOptions::transports has changed.
  virtual void transports_changed() noexcept {}

  ClientOptions options;
  const std::shared_ptr<transport::Network> network;
  Loop* loop;  // Null until the first connect() of a client without a given loop, and after the loop has ended.
  std::string address;  // The argument of the last connect().
  ConnectionLink link;
  std::shared_ptr<ClientInterception> interception;  // Null without interceptors.
  const std::shared_ptr<detail::RegionTable> regions = std::make_shared<detail::RegionTable>();
  std::vector<TransportFallback> fallback_reasons;
  std::uint64_t failovers = 0;

 protected:
  // Only one attempt runs at a time. Concurrent callers of connect() share it, and get its outcome even if another
  // attempt has begun by then.
  struct Attempt {
    std::optional<Result<void>> outcome;
  };

  // Connects to `address`, and ends with end_attempt(). If own->outcome is set meanwhile, the client was closed.
  virtual Task<void> attempt(std::shared_ptr<Attempt> own) = 0;
  virtual void end_sessions(std::string_view why) = 0;
  // The client was closed while it was connecting.
  virtual void on_attempt_closed(const Error&) {}
  // Closes the client, whose loop ends, and releases what belongs to the loop.
  virtual void release_loop() noexcept { close("the loop has ended"); }

  // If it throws, no attempt has begun.
  std::shared_ptr<Attempt> begin_attempt();
  void end_attempt(Attempt& own, Result<void> outcome);
  bool connecting() const noexcept { return current_attempt_ != nullptr; }
  void not_connected_any_more(const Error& reason);
  void place_freed() {
    if (at_place_) at_place_();
  }
  bool loop_ending() const noexcept { return loop_ending_; }

  Scope scope;  // Has the attempt to connect.

 private:
  Result<void> acquire_loop();
  void on_loop_end() noexcept override;

  bool uses_loop_ = false;  // Set by connect(): the loop knows that this client uses it.
  bool loop_ending_ = false;
  std::function<void()> at_place_;  // Set by a pool.
  std::shared_ptr<Attempt> current_attempt_;
  std::shared_ptr<exec::Condition> attempted_;
};

}  // namespace hawser::rpc
