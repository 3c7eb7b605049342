#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "block/nbd/exports.h"
#include "block/nbd/handshake.h"
#include "block/nbd/nbd_input.h"
#include "block/nbd/nbd_peer.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "hawser/socket_stream.h"
#include "hawser/task.h"

namespace hawser::block::nbd {

// Receives at least one byte behind the unused ones of `input`. `missing`: see NbdInput::room(). Error `cancelled`:
// nothing more is received.
Task<Result<void>> receive_input(SocketStream& socket, NbdInput& input, std::size_t missing);

// The negotiation of a connection, with TLS that begins within it, and the rights of the client.
class NbdNegotiation {
 public:
  // `security`: null without TLS. All others outlive this object.
  NbdNegotiation(Loop& loop, SocketStream& socket, NbdInput& input, NbdPeer peer, Exports& exports,
                 std::shared_ptr<transport::ServerSecurity> security);

  // Returns the device that the client has chosen, or null if the connection ends. Called once.
  Task<std::shared_ptr<NbdDevice>> run();
  const Negotiated& negotiated() const noexcept { return handshake_.negotiated(); }
  const NbdPeer& peer() const noexcept { return peer_; }
  // Whether the rules still permit what they permitted when the client connected.
  bool permits(const ExportInfo& info) const { return exports_.permits(identity(), info); }

 private:
  static_assert(NbdInput::contiguous_bytes_max >= NbdHandshake::option_bytes_max);

  TlsOffer tls_offer() const;
  Identity identity() const;
  Task<bool> answer_question(NbdHandshake::Wants& wants);
  Task<bool> send_text(std::string& text);
  Task<bool> begin_tls();

  Loop& loop_;
  SocketStream& socket_;
  NbdInput& input_;
  const NbdPeer peer_;
  Exports& exports_;
  const std::shared_ptr<transport::ServerSecurity> security_;
  NbdHandshake handshake_;
  std::shared_ptr<NbdDevice> device_;
};

}  // namespace hawser::block::nbd
