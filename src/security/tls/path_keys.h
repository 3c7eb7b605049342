#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/error.h"
#include "security/tls/stream.h"
#include "transport/path_proof.h"

// Keys of the paths that two sides agree on within TLS (docs/decisions/0038-*.md).
namespace hawser::tls {

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

// The proof of this side on a path that was agreed on over `stream`. Counts its outcome in the stream's Shared.
Result<std::unique_ptr<transport::PathProof>> prove_path(TlsStream& stream, const transport::PathTerms& terms,
                                                         Side side);

}  // namespace hawser::tls
