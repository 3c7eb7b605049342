#include "security/tls/path_keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <new>
#include <span>
#include <string_view>
#include <utility>

#include "base/byte_fields.h"
#include "heap/secret_memory.h"

namespace hawser::security::tls {
namespace {

// A label that no standard reserves (RFC 5705, 4).
constexpr std::string_view exporter_label = "EXPERIMENTAL-hawser-path-1";
constexpr std::string_view client_label = "hawser path 1 from the client";
constexpr std::string_view server_label = "hawser path 1 from the server";
constexpr std::string_view proof_label = "hawser path 1 proof";
constexpr std::string_view client_messages_label = "hawser path 1 messages from the client";
constexpr std::string_view server_messages_label = "hawser path 1 messages from the server";
constexpr std::string_view generation_label = "hawser path 1 next generation";
constexpr std::string_view cipher_label = "hawser path 1 cipher";

const unsigned char* octets_of(Bytes bytes) noexcept { return reinterpret_cast<const unsigned char*>(bytes.data()); }

// HKDF-SHA256. False if OpenSSL fails.
bool derive(const Secret& key, Bytes salt, std::string_view label, std::span<unsigned char> derived) noexcept {
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = kdf == nullptr ? nullptr : EVP_KDF_CTX_new(kdf);
  char digest[] = "SHA256";
  // OpenSSL does not write to these parameters.
  const auto changeable = [](const void* bytes) { return const_cast<void*>(bytes); };
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, changeable(key.data()), Secret::size),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, changeable(salt.data()), salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, changeable(label.data()), label.size()),
      OSSL_PARAM_construct_end()};
  const bool done = context != nullptr && EVP_KDF_derive(context, derived.data(), derived.size(), parameters) == 1;
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  return done;
}

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

class TlsPathProof final : public transport::PathProof, public InSecretMemory {
 public:
  explicit TlsPathProof(std::shared_ptr<TlsShared> shared) noexcept : shared_(std::move(shared)) {}

  bool prepare(const Secret& exported, Bytes hash, Side side) {
    const Side other = side == Side::client ? Side::server : Side::client;
    Secret own_key;
    Secret peer_key;
    return derive_path_key(exported, hash, side, own_key) && derive_path_key(exported, hash, other, peer_key) &&
           make_proof(own_key, hash, own_) && make_proof(peer_key, hash, expected_);
  }
  Bytes own() const noexcept override { return own_.bytes(); }
  bool verify(Bytes theirs) noexcept override {
    const bool proved =
        theirs.size() == Secret::size && CRYPTO_memcmp(theirs.data(), expected_.data(), Secret::size) == 0;
    (proved ? shared_->paths_proved : shared_->paths_refused).fetch_add(1, std::memory_order_relaxed);
    return proved;
  }

 private:
  const std::shared_ptr<TlsShared> shared_;
  Secret own_;
  Secret expected_;
};

// The keys of one direction in one generation.
class DirectionKeys : public InSecretMemory {
 public:
  static constexpr std::size_t key_bytes = 32;
  static constexpr std::size_t nonce_bytes = 12;

  // Prepares the first generation. False if OpenSSL fails.
  bool begin(const EVP_CIPHER* cipher, const Secret& exported, Bytes hash, Side sender) noexcept {
    cipher_ = cipher;
    std::copy(hash.begin(), hash.end(), hash_.begin());
    return derive(exported, hash_, sender == Side::client ? client_messages_label : server_messages_label,
                  {secret_.data(), Secret::size}) &&
           load();
  }
  // Prepares the generation after `earlier`. False if OpenSSL fails.
  bool begin_after(const DirectionKeys& earlier) noexcept {
    cipher_ = earlier.cipher_;
    hash_ = earlier.hash_;
    return derive(earlier.secret_, hash_, generation_label, {secret_.data(), Secret::size}) && load();
  }
  bool seal(const transport::PathCipher::Place& place, bool encrypts, Bytes context,
            std::span<const ConstBuffer> pieces, std::byte* to, std::byte* tag) noexcept {
    if (!start(place, 1) || !pass(nullptr, context)) return false;
    unsigned char* at = encrypts ? reinterpret_cast<unsigned char*>(to) : nullptr;
    for (const ConstBuffer& piece : pieces) {
      if (!pass(at, {piece.data, piece.size})) return false;
      if (at != nullptr) at += piece.size;
    }
    int none = 0;
    unsigned char rest[16];
    return EVP_CipherFinal_ex(context_.get(), rest, &none) == 1 &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, transport::PathCipher::tag_bytes, tag) == 1;
  }
  bool open(const transport::PathCipher::Place& place, bool encrypts, Bytes context, Bytes sealed, std::byte* to,
            const std::byte* tag) noexcept {
    int none = 0;
    unsigned char rest[16];
    return start(place, 0) &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, transport::PathCipher::tag_bytes,
                               const_cast<std::byte*>(tag)) == 1 &&
           pass(nullptr, context) && pass(encrypts ? reinterpret_cast<unsigned char*>(to) : nullptr, sealed) &&
           EVP_CipherFinal_ex(context_.get(), rest, &none) == 1;
  }

 private:
  bool load() noexcept {
    std::array<unsigned char, key_bytes + nonce_bytes> keys;
    bool loaded = derive(secret_, hash_, cipher_label, keys);
    if (context_ == nullptr) context_.reset(EVP_CIPHER_CTX_new());
    loaded = loaded && context_ != nullptr &&
             EVP_CipherInit_ex(context_.get(), cipher_, nullptr, keys.data(), keys.data() + key_bytes, 1) == 1;
    std::copy(keys.begin() + key_bytes, keys.end(), nonce_.begin());
    OPENSSL_cleanse(keys.data(), keys.size());
    return loaded;
  }
  // The nonce is the key's own, with the number and the part of the message in it (as RFC 8446, 5.3).
  bool start(const transport::PathCipher::Place& place, int encrypt) noexcept {
    std::array<unsigned char, nonce_bytes> nonce = nonce_;
    for (std::size_t at = 0; at < 8; ++at) nonce[at] ^= static_cast<unsigned char>(place.message >> (8 * at));
    nonce[8] ^= place.part;
    return EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), encrypt) == 1;
  }
  // Without `to`, the bytes are signed only. OpenSSL counts bytes as int.
  bool pass(unsigned char* to, Bytes bytes) noexcept {
    constexpr std::size_t step_max = std::size_t{1} << 30;
    while (!bytes.empty()) {
      const std::size_t step = std::min(bytes.size(), step_max);
      int done = 0;
      if (EVP_CipherUpdate(context_.get(), to, &done, octets_of(bytes), static_cast<int>(step)) != 1) return false;
      if (to != nullptr) to += step;
      bytes = bytes.subspan(step);
    }
    return true;
  }

  const EVP_CIPHER* cipher_ = nullptr;
  std::array<std::byte, 32> hash_{};
  std::array<unsigned char, nonce_bytes> nonce_{};
  Secret secret_;
  CipherContextPtr context_;
};

class TlsPathCipher final : public transport::PathCipher {
 public:
  TlsPathCipher(bool encrypts, std::shared_ptr<std::atomic<std::uint64_t>> refused) noexcept
      : encrypts_(encrypts), refused_(std::move(refused)) {}
  bool prepare(const EVP_CIPHER* cipher, const Secret& exported, Bytes hash, Side side) {
    const Side other = side == Side::client ? Side::server : Side::client;
    own_ = std::make_unique<DirectionKeys>();
    peer_ = std::make_unique<DirectionKeys>();
    return own_->begin(cipher, exported, hash, side) && peer_->begin(cipher, exported, hash, other);
  }

  bool encrypts() const noexcept override { return encrypts_; }
  void seal(const Place& place, Bytes context, std::span<const ConstBuffer> pieces, std::byte* to,
            std::byte* tag) override {
    if (own_->seal(place, encrypts_, context, pieces, to, tag)) return;
    ERR_clear_error();
    throw std::bad_alloc();
  }
  bool open(const Place& place, Bytes context, Bytes sealed, std::byte* to, const std::byte* tag) noexcept override {
    DirectionKeys* keys = peer_.get();
    if (place.generation != peer_generation_) {
      if (peer_next_ == nullptr && !prepare_next()) return false;
      keys = peer_next_.get();
    }
    const bool sound = keys->open(place, encrypts_, context, sealed, to, tag);
    if (!sound) ERR_clear_error();
    return sound;
  }
  void begin_generation() override {
    auto next = std::make_unique<DirectionKeys>();
    if (!next->begin_after(*own_)) {
      ERR_clear_error();
      throw std::bad_alloc();
    }
    own_ = std::move(next);
  }
  void begin_peer_generation() noexcept override {
    if (peer_next_ == nullptr && !prepare_next()) return;
    peer_ = std::move(peer_next_);
    ++peer_generation_;
  }
  void count_refused() noexcept override {
    if (refused_ != nullptr) refused_->fetch_add(1, std::memory_order_relaxed);
  }

 private:
  bool prepare_next() noexcept {
    std::unique_ptr<DirectionKeys> next(new (std::nothrow) DirectionKeys);
    if (next == nullptr || !next->begin_after(*peer_)) {
      ERR_clear_error();
      return false;
    }
    peer_next_ = std::move(next);
    return true;
  }

  const bool encrypts_;
  const std::shared_ptr<std::atomic<std::uint64_t>> refused_;
  std::unique_ptr<DirectionKeys> own_;
  std::unique_ptr<DirectionKeys> peer_;
  std::unique_ptr<DirectionKeys> peer_next_;  // Null until a message of that generation has arrived.
  std::uint16_t peer_generation_ = 0;
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
  return derive(exported, hash, sender == Side::client ? client_label : server_label, {key.data(), Secret::size});
}

bool export_path_secret(SSL* ssl, Secret& exported) noexcept {
  return SSL_export_keying_material(ssl, exported.data(), Secret::size, exporter_label.data(), exporter_label.size(),
                                    nullptr, 0, 0) == 1;
}

std::unique_ptr<transport::PathCipher> make_path_cipher(PathAlgorithm algorithm, bool encrypts, const Secret& exported,
                                                        Bytes hash, Side side,
                                                        std::shared_ptr<std::atomic<std::uint64_t>> refused) {
  const EVP_CIPHER* const cipher =
      algorithm == PathAlgorithm::chacha20_poly1305 ? EVP_chacha20_poly1305() : EVP_aes_256_gcm();
  auto made = std::make_unique<TlsPathCipher>(encrypts, std::move(refused));
  if (cipher == nullptr || !made->prepare(cipher, exported, hash, side)) return nullptr;
  return made;
}

Result<transport::PathSecurity> secure_path(TlsStream& stream, const transport::PathTerms& terms, Side side) {
  ERR_clear_error();
  const std::shared_ptr<TlsShared>& shared = stream.shared();
  SSL* const ssl = stream.session().ssl();
  const std::array<std::byte, 32> hash = hash_of(terms);
  Secret exported;
  auto proof = std::make_unique<TlsPathProof>(shared);
  transport::PathSecurity made;
  bool prepared = export_path_secret(ssl, exported) && proof->prepare(exported, hash, side);
  if (prepared && terms.protection > transport::PathProtection::authenticated) {
    const bool chacha = SSL_CIPHER_get_cipher_nid(SSL_get_current_cipher(ssl)) == NID_chacha20_poly1305;
    made.cipher = make_path_cipher(chacha ? PathAlgorithm::chacha20_poly1305 : PathAlgorithm::aes_256_gcm,
                                   terms.protection == transport::PathProtection::sealed_messages, exported, hash, side,
                                   std::shared_ptr<std::atomic<std::uint64_t>>(shared, &shared->path_messages_refused));
    prepared = made.cipher != nullptr;
  }
  made.proof = std::move(proof);
  ERR_clear_error();
  if (!prepared) {
    return fail(Error::of_transport(
        ErrorCode::unavailable,
        "OpenSSL cannot derive the keys of a path: does it have HKDF, HMAC-SHA256 and AES-256-GCM?"));
  }
  return made;
}

}  // namespace hawser::security::tls
