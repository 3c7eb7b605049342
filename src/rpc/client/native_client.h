#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "negotiate/dial.h"
#include "negotiate/transport_backoff.h"
#include "rpc/client/client_session.h"
#include "rpc/client/client_state.h"
#include "rpc/client/pending_call_queue.h"
#include "rpc/session/limited_log.h"

namespace hawser::rpc {

// A client of the library's own protocol. Its connection moves to another transport when the transport breaks.
class NativeClient final : public ClientState, ClientSession::Owner {
 public:
  NativeClient(Loop* on, std::shared_ptr<transport::Network> over, ClientOptions with);
  ~NativeClient() override;

  bool has_session() const noexcept override { return session_ != nullptr; }
  std::size_t calls_in_flight() const noexcept override;
  // 0 while the connection moves to another transport.
  std::size_t free_places() const noexcept override { return session_ ? session_->free_places() : 0; }
  Time last_used() const noexcept override { return session_ ? session_->last_used() : Time{}; }
  bool going_away() const noexcept override { return session_ && session_->going_away(); }
  std::string_view transport_name() const noexcept override;
  Task<Result<Duration>> ping() override;
  void transports_changed() noexcept override { transports_.reset(); }

 private:
  struct Opened {
    std::shared_ptr<ClientSession> session;
    std::string transport;
    bool authenticated = false;  // Both sides have proved that they agreed on the path.
  };

  // ClientState
  Task<void> attempt(std::shared_ptr<Attempt> own) override;
  void end_sessions(std::string_view why) override;
  void on_attempt_closed(const Error& reason) override;
  void release_loop() noexcept override;
  // ClientSession::Owner
  bool take_over(ClientSession& session, detail::CallOperation& operation, bool unsent, const Error& reason) override;
  void on_session_end(ClientSession& session, const Error& reason) override;
  void on_place() override { place_freed(); }

  Task<void> connect_once(std::shared_ptr<Attempt> own);
  void begin_failback() { scope.spawn(failback()); }
  Task<void> failback();
  Task<Result<Opened>> open_session(std::string to);
  Task<Result<Opened>> open_best(std::string to);
  Task<Result<void>> probe(ClientSession& session, std::size_t body_bytes, Duration time);
  void use(Opened opened);
  void log_fallbacks();
  void release_later(std::shared_ptr<ClientSession> session);
  bool fails_over(const Error& reason) const noexcept;
  PendingCallQueue& pending_calls();
  void send_pending();
  void fail_pending(const Error& reason);

  std::shared_ptr<ClientSession> session_;
  std::string transport_;  // The transport that carries the session; empty for the stream.
  // Sessions that were replaced, until their last calls are answered.
  std::list<std::shared_ptr<ClientSession>> finishing_;
  std::shared_ptr<negotiate::AttachedTransports> transports_;
  negotiate::TransportBackoff health_;
  bool fallbacks_logged_ = false;
  LimitedLog log_;                                   // For lines about connections.
  std::shared_ptr<PendingCallQueue> pending_calls_;  // Non-null while the connection moves to another transport.
  // The transport that the connection moves away from, if it is not known to be broken.
  TransportFallback lost_;
  MemberTimer<&NativeClient::begin_failback> retry_;
};

}  // namespace hawser::rpc
