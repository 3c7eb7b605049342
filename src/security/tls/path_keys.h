#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/error.h"
#include "hawser/tls.h"
#include "security/tls/stream.h"
#include "transport/path_proof.h"

// Keys of the paths that two sides agree on within TLS (docs/decisions/0038-*.md).
namespace hawser::security::tls {

enum class Side : std::uint8_t { client, server };

// A secret of 32 bytes that is wiped at its end.
class Secret {
 public:
  static constexpr std::size_t size = 32;
  Secret() noexcept = default;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret() { wipe(); }

  unsigned char* data() noexcept { return bytes_.data(); }
  const unsigned char* data() const noexcept { return bytes_.data(); }
  Bytes bytes() const noexcept { return {reinterpret_cast<const std::byte*>(bytes_.data()), size}; }
  void wipe() noexcept;

 private:
  std::array<unsigned char, size> bytes_{};
};

// SHA-256 over the terms of a path. Every field has its length before it, so that different terms have different
// hashes.
std::array<std::byte, 32> hash_of(const transport::PathTerms& terms);
// Derives the key of one direction of a path, of messages from `sender`. False if OpenSSL fails.
bool derive_path_key(const Secret& exported, Bytes hash, Side sender, Secret& key) noexcept;
// The secret that both ends of the connection export for paths. False if OpenSSL fails.
bool export_path_secret(SSL* ssl, Secret& exported) noexcept;

// Makes the protection of this side of a path that was agreed on over `stream`. Counts outcomes in the stream's
// TlsShared.
Result<transport::PathSecurity> secure_path(TlsStream& stream, const transport::PathTerms& terms, Side side);

// Returns the level that an option demands of paths. They are not used at all with encrypted_stream.
constexpr transport::PathProtection path_protection(TlsProtection option) noexcept {
  switch (option) {
    case TlsProtection::signed_messages: return transport::PathProtection::signed_messages;
    case TlsProtection::sealed_messages: return transport::PathProtection::sealed_messages;
    case TlsProtection::authenticated:
    case TlsProtection::encrypted_stream: break;
  }
  return transport::PathProtection::authenticated;
}

// Ciphers of paths. ChaCha20-Poly1305 if the TLS connection uses it, because its client has no instructions for AES;
// otherwise AES-256-GCM.
enum class PathAlgorithm : std::uint8_t { aes_256_gcm, chacha20_poly1305 };
// Null if OpenSSL fails. `refused` is increased by count_refused(); null: by nothing.
std::unique_ptr<transport::PathCipher> make_path_cipher(PathAlgorithm algorithm, bool encrypts, const Secret& exported,
                                                        Bytes hash, Side side,
                                                        std::shared_ptr<std::atomic<std::uint64_t>> refused);

}  // namespace hawser::security::tls
