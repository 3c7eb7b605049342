#include <benchmark/benchmark.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "security/tls/authority.h"
#include "security/tls/session.h"

// Records of TLS without sockets: a flush is encrypted by one session and decrypted by another one. Beside them the
// same cipher alone, in pieces of the same lengths.
namespace hawser::bench {
namespace {

using security::tls::TlsSession;

constexpr std::size_t record_bytes_max = 16 * 1024;

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void move_bytes(TlsSession& from, TlsSession& to) {
  to.input().append(from.output().bytes());
  from.output().clear();
}

// Both ends of a connection after the handshake.
struct Ends {
  Ends() {
    const TemporaryFolder folder;
    security::tls::Authority authority(folder.path().string(), "bench");
    const auto load = [](const security::tls::ContextOptions& options) {
      auto loaded = security::tls::TlsContext::load(options);
      require(loaded.has_value(), "no context of TLS");
      return *loaded;
    };
    server = std::make_unique<TlsSession>(load({.server = true, .certificates = {authority.issue("server")}}), "");
    client = std::make_unique<TlsSession>(
        load({.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024}), "localhost", "", nullptr);
    for (int turn = 0; turn < 3; ++turn) {
      static_cast<void>(client->handshake());
      move_bytes(*client, *server);
      static_cast<void>(server->handshake());
      move_bytes(*server, *client);
    }
    std::size_t tickets = 0;
    require(client->read(space, tickets) == TlsSession::Read::more, "the handshake failed");
  }
  void write(std::span<const std::byte> flush) {
    const ConstBuffer piece{flush.data(), flush.size()};
    require(client->write(std::span(&piece, 1), flush.size()) == flush.size(), "the session failed");
  }
  void read(std::size_t bytes) {
    for (std::size_t got = 0; got < bytes;) {
      std::size_t size = 0;
      require(server->read(space, size) == TlsSession::Read::data, "the session failed");
      got += size;
    }
  }
  // Data in the other direction.
  void answer() {
    const ConstBuffer piece{space.data(), 1};
    server->write(std::span(&piece, 1), 1);
    move_bytes(*server, *client);
    std::size_t size = 0;
    require(client->read(space, size) == TlsSession::Read::data, "the session failed");
  }
  std::unique_ptr<TlsSession> server;
  std::unique_ptr<TlsSession> client;
  std::vector<std::byte> space = std::vector<std::byte>(256 * 1024);
};

void tls_write_and_read(benchmark::State& state) {
  Ends ends;
  const std::vector<std::byte> flush(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    ends.write(flush);
    move_bytes(*ends.client, *ends.server);
    ends.read(flush.size());
  }
  ends.answer();
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(tls_write_and_read)->Name("tls/write_and_read")->Arg(164)->Arg(11'480)->Arg(16'384)->Arg(262'144);

// Encrypts and decrypts with AES-256-GCM as TLS 1.3 does, without TLS.
void tls_cipher_alone(benchmark::State& state) {
  using ContextPtr = std::unique_ptr<EVP_CIPHER_CTX, security::tls::Released<EVP_CIPHER_CTX_free>>;
  const std::array<unsigned char, 32> key{};
  const std::array<unsigned char, 12> nonce{};
  const std::array<unsigned char, 5> header{};
  std::array<unsigned char, 16> tag{};
  std::vector<unsigned char> plain(static_cast<std::size_t>(state.range(0)));
  std::vector<unsigned char> sealed(plain.size());
  const ContextPtr in(EVP_CIPHER_CTX_new());
  const ContextPtr out(EVP_CIPHER_CTX_new());
  bool sound = EVP_EncryptInit_ex(out.get(), EVP_aes_256_gcm(), nullptr, key.data(), nonce.data()) == 1 &&
               EVP_DecryptInit_ex(in.get(), EVP_aes_256_gcm(), nullptr, key.data(), nonce.data()) == 1;
  const int header_bytes = static_cast<int>(header.size());
  for (auto _ : state) {
    for (std::size_t at = 0; at < plain.size(); at += record_bytes_max) {
      const int size = static_cast<int>(std::min(record_bytes_max, plain.size() - at));
      int done = 0;
      sound = sound && EVP_EncryptInit_ex(out.get(), nullptr, nullptr, nullptr, nonce.data()) == 1 &&
              EVP_EncryptUpdate(out.get(), nullptr, &done, header.data(), header_bytes) == 1 &&
              EVP_EncryptUpdate(out.get(), sealed.data() + at, &done, plain.data() + at, size) == 1 &&
              EVP_EncryptFinal_ex(out.get(), sealed.data() + at, &done) == 1 &&
              EVP_CIPHER_CTX_ctrl(out.get(), EVP_CTRL_GCM_GET_TAG, 16, tag.data()) == 1;
      sound = sound && EVP_DecryptInit_ex(in.get(), nullptr, nullptr, nullptr, nonce.data()) == 1 &&
              EVP_DecryptUpdate(in.get(), nullptr, &done, header.data(), header_bytes) == 1 &&
              EVP_DecryptUpdate(in.get(), plain.data() + at, &done, sealed.data() + at, size) == 1 &&
              EVP_CIPHER_CTX_ctrl(in.get(), EVP_CTRL_GCM_SET_TAG, 16, tag.data()) == 1 &&
              EVP_DecryptFinal_ex(in.get(), plain.data() + at, &done) == 1;
    }
  }
  require(sound, "the cipher failed");
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(tls_cipher_alone)->Name("tls/cipher_alone")->Arg(164)->Arg(11'480)->Arg(16'384)->Arg(262'144);

}  // namespace
}  // namespace hawser::bench
