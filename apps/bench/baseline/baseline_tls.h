#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "bench/baseline/baseline_socket.h"

namespace hawser::bench {

// One end of a connected socket with bare OpenSSL above it: TLS 1.3 with OpenSSL's first cipher, as this library has.
class TlsChannel {
 public:
  // Performs the handshake and waits for it. Throws std::runtime_error. `buffer` as for SocketChannel.
  static TlsChannel connect(BaselineSocket socket, std::span<char> buffer);
  static TlsChannel serve(BaselineSocket socket, std::span<char> buffer);
  TlsChannel(TlsChannel&&) noexcept;
  TlsChannel& operator=(TlsChannel&&) = delete;
  ~TlsChannel();

  int descriptor() const noexcept { return socket_.descriptor(); }
  std::string_view receive(std::size_t most) noexcept;
  bool lost() const noexcept { return lost_; }
  std::size_t send(std::string_view bytes) noexcept;
  std::size_t room() const noexcept { return buffer_.size(); }

 private:
  struct Session;
  TlsChannel(BaselineSocket socket, std::span<char> buffer, bool server);
  bool waits(int result) noexcept;

  BaselineSocket socket_;
  std::span<char> buffer_;
  std::unique_ptr<Session> session_;
  bool lost_ = false;
};

}  // namespace hawser::bench
