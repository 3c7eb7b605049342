#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "rpc/client/client_protocol.h"
#include "rpc/client/client_state.h"

namespace hawser::rpc {

// A client of another protocol: it has at most one session.
class ProtocolClient final : public ClientState, ProtocolSession::Owner {
 public:
  // options.protocol is not null.
  ProtocolClient(Loop* loop, std::shared_ptr<transport::Network> network, ClientOptions options);

  bool has_session() const noexcept override { return session_ != nullptr; }
  std::size_t calls_in_flight() const noexcept override { return session_ ? session_->calls_in_flight() : 0; }
  std::size_t free_places() const noexcept override { return session_ ? session_->free_places() : 0; }
  Time last_used() const noexcept override { return session_ ? session_->last_used() : Time{}; }
  bool going_away() const noexcept override { return session_ && session_->going_away(); }
  std::string_view transport_name() const noexcept override {
    return session_ ? session_->transport_name() : std::string_view();
  }
  Task<Result<Duration>> ping() override;

 private:
  Task<void> attempt(std::shared_ptr<Attempt> own) override;
  Result<void> use(std::unique_ptr<transport::Stream> stream);
  void end_sessions(std::string_view why) override;
  void on_session_end(const Error& reason) override;
  void on_place() override { place_freed(); }

  std::shared_ptr<ProtocolSession> session_;
};

}  // namespace hawser::rpc
