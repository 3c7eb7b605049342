#include "bench/baseline/baseline_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/temporary_folder.h"
#include "security/tls/authority.h"

namespace hawser::bench {
namespace {

SSL_CTX* make_context(bool server) {
  SSL_CTX* const context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
  if (context == nullptr) throw std::runtime_error("OpenSSL makes no context");
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (!server) return context;
  const TemporaryFolder folder;
  security::tls::Authority authority(folder.path().string(), "bench");
  const TlsCertificate files = authority.issue("server");
  const bool used = SSL_CTX_use_certificate_chain_file(context, files.certificate_file.c_str()) == 1 &&
                    SSL_CTX_use_PrivateKey_file(context, files.key_file.c_str(), SSL_FILETYPE_PEM) == 1;
  if (!used) throw std::runtime_error("OpenSSL refuses the certificate");
  return context;
}

}  // namespace

struct TlsChannel::Session {
  explicit Session(bool server) {
    // A process plays one side only.
    static SSL_CTX* const context = make_context(server);
    ssl = SSL_new(context);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { SSL_free(ssl); }
  SSL* ssl = nullptr;
};

TlsChannel::TlsChannel(TlsChannel&&) noexcept = default;
TlsChannel::~TlsChannel() = default;

TlsChannel::TlsChannel(BaselineSocket socket, std::span<char> buffer, bool server)
    : socket_(std::move(socket)), buffer_(buffer), session_(std::make_unique<Session>(server)) {
  SSL* const ssl = session_->ssl;
  if (ssl == nullptr || SSL_set_fd(ssl, descriptor()) != 1) throw std::runtime_error("out of memory");
  if (server) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
  }
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl);
    if (result == 1) return;
    if (!waits(result)) throw std::runtime_error("the TLS handshake failed");
    pollfd ready{descriptor(), POLLIN, 0};
    poll(&ready, 1, -1);
  }
}

TlsChannel TlsChannel::connect(BaselineSocket socket, std::span<char> buffer) {
  return TlsChannel(std::move(socket), buffer, false);
}
TlsChannel TlsChannel::serve(BaselineSocket socket, std::span<char> buffer) {
  return TlsChannel(std::move(socket), buffer, true);
}

bool TlsChannel::waits(int result) noexcept {
  const int error = SSL_get_error(session_->ssl, result);
  return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

std::string_view TlsChannel::receive(std::size_t most) noexcept {
  most = std::min(most, buffer_.size());
  std::size_t got = 0;
  while (got < most) {
    ERR_clear_error();
    std::size_t bytes = 0;
    const int result = SSL_read_ex(session_->ssl, buffer_.data() + got, most - got, &bytes);
    if (result != 1) {
      lost_ = lost_ || !waits(result);
      break;
    }
    got += bytes;
  }
  return {buffer_.data(), got};
}

std::size_t TlsChannel::send(std::string_view bytes) noexcept {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    ERR_clear_error();
    std::size_t written = 0;
    const int result = SSL_write_ex(session_->ssl, bytes.data() + sent, bytes.size() - sent, &written);
    if (result != 1) {
      lost_ = lost_ || !waits(result);
      break;
    }
    sent += written;
  }
  return sent;
}

}  // namespace hawser::bench
