#pragma once

#include <sys/socket.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "security/tls/session.h"
#include "tests/raw_peer.h"

namespace hawser::testing_tools {

inline std::shared_ptr<const security::tls::TlsContext> load(const security::tls::ContextOptions& options) {
  auto loaded = security::tls::TlsContext::load(options);
  EXPECT_TRUE(loaded) << error_of(loaded);
  return loaded ? *loaded : nullptr;
}

// Moves the output of one end to the input of the other. Returns the number of bytes.
inline std::size_t move_bytes(security::tls::TlsSession& from, security::tls::TlsSession& to) {
  const Bytes bytes = from.output().bytes();
  const std::size_t size = bytes.size();
  to.input().append(bytes);
  if (size != 0) from.output().consume(size);
  return size;
}

// Performs the handshake of both ends, and moves what they send afterwards. Returns false if it fails.
inline bool shake_hands(security::tls::TlsSession& client, security::tls::TlsSession& server) {
  security::tls::TlsSession::Progress progress[] = {client.handshake(), security::tls::TlsSession::Progress::more};
  for (int turn = 0; turn < 8; ++turn) {
    move_bytes(client, server);
    if (progress[1] == security::tls::TlsSession::Progress::more) progress[1] = server.handshake();
    move_bytes(server, client);
    if (progress[0] == security::tls::TlsSession::Progress::more) progress[0] = client.handshake();
  }
  return progress[0] == security::tls::TlsSession::Progress::done &&
         progress[1] == security::tls::TlsSession::Progress::done;
}

// The bytes that `session` has received and can decrypt.
inline std::string received_by(security::tls::TlsSession& session) {
  std::string all;
  std::array<std::byte, 4096> space;
  std::size_t size = 0;
  while (session.read(space, size) == security::tls::TlsSession::Read::data) all += as_text(Bytes(space).first(size));
  return all;
}

inline void write_text(security::tls::TlsSession& session, std::string_view text) {
  const ConstBuffer piece{as_bytes(text).data(), text.size()};
  EXPECT_EQ(session.write(std::span(&piece, 1), text.size()), text.size());
}

// A peer over a socket whose TLS is performed by hand.
class RawTls {
 public:
  RawTls(RawSocket socket, std::unique_ptr<security::tls::TlsSession> session)
      : socket_(std::move(socket)), session_(std::move(session)) {}

  RawSocket& socket() { return socket_; }
  security::tls::TlsSession& session() { return *session_; }
  void flush() {
    if (session_->output().empty()) return;
    socket_.send(session_->output().bytes());
    session_->output().clear();
  }
  // `last` false: the last flight is sent with the first data.
  bool handshake(bool last = true) {
    for (;;) {
      const security::tls::TlsSession::Progress progress = session_->handshake();
      if (last || progress != security::tls::TlsSession::Progress::done) flush();
      if (progress != security::tls::TlsSession::Progress::more)
        return progress == security::tls::TlsSession::Progress::done;
      if (!fill()) return false;
    }
  }
  // Requests a renegotiation, of TLS 1.2.
  bool renegotiate() {
    const bool begun = SSL_renegotiate(session_->ssl()) == 1;
    static_cast<void>(session_->handshake());
    flush();
    return begun;
  }
  void send(std::string_view text) {
    const ConstBuffer piece{as_bytes(text).data(), text.size()};
    EXPECT_EQ(session_->write(std::span(&piece, 1), text.size()), text.size());
    flush();
  }
  void send(const Octets& bytes) { send(as_text(bytes)); }
  // Exactly `size` bytes; nothing if the peer ends before.
  std::optional<Octets> receive(std::size_t size) {
    Octets all(size);
    for (std::size_t got = 0; got < size;) {
      std::size_t bytes = 0;
      switch (session_->read(MutableBytes(all).subspan(got), bytes)) {
        case security::tls::TlsSession::Read::data: got += bytes; break;
        case security::tls::TlsSession::Read::more:
          if (!fill()) return std::nullopt;
          break;
        default: return std::nullopt;
      }
    }
    return all;
  }
  // How the peer ends the stream, after bytes that are ignored.
  security::tls::TlsSession::Read receive_end() {
    std::array<std::byte, 4096> space;
    for (;;) {
      std::size_t bytes = 0;
      const security::tls::TlsSession::Read read = session_->read(space, bytes);
      if (read == security::tls::TlsSession::Read::closed || read == security::tls::TlsSession::Read::failed)
        return read;
      if (read == security::tls::TlsSession::Read::more && !fill()) return security::tls::TlsSession::Read::more;
    }
  }

 private:
  bool fill() {
    const auto one = socket_.receive(1);  // It waits.
    if (!one) return false;
    session_->input().append(*one);
    std::array<std::byte, 16 * 1024> space;
    const ssize_t size = ::recv(socket_.fd(), space.data(), space.size(), MSG_DONTWAIT);
    if (size > 0) session_->input().append(Bytes(space).first(static_cast<std::size_t>(size)));
    return true;
  }
  RawSocket socket_;
  std::unique_ptr<security::tls::TlsSession> session_;
};

}  // namespace hawser::testing_tools
