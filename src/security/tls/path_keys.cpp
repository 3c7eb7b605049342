#include "security/tls/path_keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <utility>

#include "base/byte_fields.h"

namespace hawser::tls {
namespace {

// A label that no standard reserves (RFC 5705, 4).
constexpr std::string_view exporter_label = "EXPERIMENTAL-hawser-path-1";
constexpr std::string_view client_label = "hawser path 1 from the client";
constexpr std::string_view server_label = "hawser path 1 from the server";
constexpr std::string_view proof_label = "hawser path 1 proof";

const unsigned char* octets_of(Bytes bytes) noexcept { return reinterpret_cast<const unsigned char*>(bytes.data()); }

// HMAC-SHA256 over the label of proofs and the terms.
bool make_proof(const Secret& key, Bytes hash, Secret& proof) noexcept {
  std::array<unsigned char, proof_label.size() + 32> message;
  std::copy(proof_label.begin(), proof_label.end(), message.begin());
  std::copy(octets_of(hash), octets_of(hash) + hash.size(), message.begin() + proof_label.size());
  std::size_t size = 0;
  return EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), Secret::size, message.data(),
                   message.size(), proof.data(), Secret::size, &size) != nullptr &&
         size == Secret::size;
}

class TlsPathProof final : public transport::PathProof {
 public:
  explicit TlsPathProof(std::shared_ptr<Shared> shared) noexcept : shared_(std::move(shared)) {}

  bool prepare(SSL* ssl, const transport::PathTerms& terms, Side side) {
    const std::array<std::byte, 32> hash = hash_of(terms);
    const Side other = side == Side::client ? Side::server : Side::client;
    Secret exported;
    Secret own_key;
    Secret peer_key;
    return export_path_secret(ssl, exported) && derive_path_key(exported, hash, side, own_key) &&
           derive_path_key(exported, hash, other, peer_key) && make_proof(own_key, hash, own_) &&
           make_proof(peer_key, hash, expected_);
  }
  Bytes own() const noexcept override { return own_.bytes(); }
  bool verify(Bytes theirs) noexcept override {
    const bool proved =
        theirs.size() == Secret::size && CRYPTO_memcmp(theirs.data(), expected_.data(), Secret::size) == 0;
    (proved ? shared_->paths_proved : shared_->paths_refused).fetch_add(1, std::memory_order_relaxed);
    return proved;
  }

 private:
  const std::shared_ptr<Shared> shared_;
  Secret own_;
  Secret expected_;
};

}  // namespace

void Secret::wipe() noexcept { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::array<std::byte, 32> hash_of(const transport::PathTerms& terms) {
  ByteWriter out;
  const auto field = [&out](Bytes bytes) { out.number(static_cast<std::uint32_t>(bytes.size())).bytes(bytes); };
  out.number(static_cast<std::uint8_t>(terms.protection));
  field(as_bytes(terms.transport));
  field(terms.offer);
  field(terms.selection);
  field(terms.answer);
  std::array<std::byte, 32> hash{};
  const Bytes all = out.written();
  if (EVP_Q_digest(nullptr, "SHA256", nullptr, all.data(), all.size(), reinterpret_cast<unsigned char*>(hash.data()),
                   nullptr) != 1) {
    ERR_clear_error();
    throw std::bad_alloc();
  }
  return hash;
}

bool derive_path_key(const Secret& exported, Bytes hash, Side sender, Secret& key) noexcept {
  std::string_view label = sender == Side::client ? client_label : server_label;
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf);
  char digest[] = "SHA256";
  // OpenSSL does not write to these parameters.
  const auto changeable = [](const void* bytes) { return const_cast<void*>(bytes); };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, changeable(exported.data()), Secret::size),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, changeable(hash.data()), hash.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, changeable(label.data()), label.size()),
      OSSL_PARAM_construct_end()};
  const bool derived = context != nullptr && EVP_KDF_derive(context, key.data(), Secret::size, parameters) == 1;
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  return derived;
}

bool export_path_secret(SSL* ssl, Secret& exported) noexcept {
  return SSL_export_keying_material(ssl, exported.data(), Secret::size, exporter_label.data(), exporter_label.size(),
                                    nullptr, 0, 0) == 1;
}

Result<std::unique_ptr<transport::PathProof>> prove_path(TlsStream& stream, const transport::PathTerms& terms,
                                                         Side side) {
  ERR_clear_error();
  auto proof = std::make_unique<TlsPathProof>(stream.shared());
  const bool prepared = proof->prepare(stream.session().ssl(), terms, side);
  ERR_clear_error();
  if (!prepared) {
    return fail(ErrorCode::unavailable, "OpenSSL cannot derive the keys of a path: does it have HKDF and HMAC-SHA256?",
                ErrorScope::transport);
  }
  return proof;
}

}  // namespace hawser::tls
