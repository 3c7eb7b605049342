#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/connection.h"
#include "negotiate/settle.h"
#include "transport/path_proof.h"

namespace hawser::negotiate {

// Stands between a connection on a path and its session until the peer has proved that it agreed on this path. The
// first message in each direction is the proof (docs/wire-format.md, "Proof of a path"). Every other first message, and
// no message before the deadline, ends the session with the reason. Afterwards the guard passes everything on. Loop's
// thread only.
class PathGuard final : public transport::MessageSink {
 public:
  // The length of a message that has a proof. It has no payload.
  static constexpr std::size_t message_bytes = proof_message_bytes;

  // The references outlive this object. `session` ends at on_closed(), and aborts the connection.
  PathGuard(Loop& loop, transport::Connection& connection, transport::MessageSink& session,
            std::unique_ptr<transport::PathProof> proof, Time deadline)
      : loop_(loop), connection_(connection), session_(session), proof_(std::move(proof)), deadline_(deadline) {}

  // Starts the connection and sends this side's proof, before every message of the session.
  void start();
  bool proved() const noexcept { return proved_; }
  // Why the guard has ended the session; empty if it has not.
  std::string_view refusal() const noexcept { return refusal_; }
  // The session has ended: nothing is expected any more.
  void end() noexcept;

 private:
  // transport::MessageSink
  void on_message(const transport::Message& message) override;
  transport::ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override;
  detail::ReceiveAccount* receive_account() noexcept override { return session_.receive_account(); }
  void on_drained() override { session_.on_drained(); }
  void on_closed(const Error& reason) override;

  void expire() noexcept;
  void send_own();
  void refuse(const char* why);

  Loop& loop_;
  transport::Connection& connection_;
  transport::MessageSink& session_;
  std::unique_ptr<transport::PathProof> proof_;  // Null after the peer's proof, and after the end.
  const Time deadline_;
  std::string refusal_;
  bool sent_ = false;
  bool proved_ = false;
  bool ended_ = false;
  MemberTimer<&PathGuard::expire> timer_{*this};
};

}  // namespace hawser::negotiate
