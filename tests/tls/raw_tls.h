#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "security/tls/session.h"
#include "tests/raw_peer.h"

namespace hawser::testing_tools {

inline std::shared_ptr<const tls::Context> load(const tls::ContextOptions& options) {
  auto loaded = tls::Context::load(options);
  EXPECT_TRUE(loaded) << error_of(loaded);
  return loaded ? *loaded : nullptr;
}

// Moves the output of one end to the input of the other. Returns the number of bytes.
inline std::size_t move_bytes(tls::Session& from, tls::Session& to) {
  const Bytes bytes = from.output().bytes();
  const std::size_t size = bytes.size();
  to.input().append(bytes);
  if (size != 0) from.output().consume(size);
  return size;
}

// Performs the handshake of both ends, and moves what they send afterwards. Returns false if it fails.
inline bool shake_hands(tls::Session& client, tls::Session& server) {
  tls::Session::Progress progress[] = {client.handshake(), tls::Session::Progress::more};
  for (int turn = 0; turn < 8; ++turn) {
    move_bytes(client, server);
    if (progress[1] == tls::Session::Progress::more) progress[1] = server.handshake();
    move_bytes(server, client);
    if (progress[0] == tls::Session::Progress::more) progress[0] = client.handshake();
  }
  return progress[0] == tls::Session::Progress::done && progress[1] == tls::Session::Progress::done;
}

// The bytes that `session` has received and can decrypt.
inline std::string received_by(tls::Session& session) {
  std::string all;
  std::array<std::byte, 4096> space;
  std::size_t size = 0;
  while (session.read(space, size) == tls::Session::Read::data) all += as_text(Bytes(space).first(size));
  return all;
}

inline void write_text(tls::Session& session, std::string_view text) {
  const ConstBuffer piece{as_bytes(text).data(), text.size()};
  EXPECT_EQ(session.write(std::span(&piece, 1), text.size()), text.size());
}

// A peer over a socket whose TLS is performed by hand.
class RawTls {
 public:
  RawTls(RawSocket socket, std::unique_ptr<tls::Session> session)
      : socket_(std::move(socket)), session_(std::move(session)) {}

  RawSocket& socket() { return socket_; }
  tls::Session& session() { return *session_; }
  void flush() {
    if (session_->output().empty()) return;
    socket_.send(session_->output().bytes());
    session_->output().clear();
  }
  // `last` false: the last flight is sent with the first data.
  bool handshake(bool last = true) {
    for (;;) {
      const tls::Session::Progress progress = session_->handshake();
      if (last || progress != tls::Session::Progress::done) flush();
      if (progress != tls::Session::Progress::more) return progress == tls::Session::Progress::done;
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
        case tls::Session::Read::data: got += bytes; break;
        case tls::Session::Read::more:
          if (!fill()) return std::nullopt;
          break;
        default: return std::nullopt;
      }
    }
    return all;
  }
  // How the peer ends the stream, after bytes that are ignored.
  tls::Session::Read receive_end() {
    std::array<std::byte, 4096> space;
    for (;;) {
      std::size_t bytes = 0;
      const tls::Session::Read read = session_->read(space, bytes);
      if (read == tls::Session::Read::closed || read == tls::Session::Read::failed) return read;
      if (read == tls::Session::Read::more && !fill()) return tls::Session::Read::more;
    }
  }

 private:
  bool fill() {
    const auto one = socket_.receive(1);
    if (!one) return false;
    session_->input().append(*one);
    return true;
  }
  RawSocket socket_;
  std::unique_ptr<tls::Session> session_;
};

}  // namespace hawser::testing_tools
