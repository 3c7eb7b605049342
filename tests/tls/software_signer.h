#pragma once

#include <openssl/rsa.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/loop.h"
#include "hawser/tls.h"
#include "security/tls/certificate.h"

namespace hawser::testing_tools {

// Signs as a token does, with a key of a file. Thread-safe.
class SoftwareSigner {
 public:
  explicit SoftwareSigner(const std::string& key_file) {
    const Result<security::tls::PemText> pem = security::tls::read_file(key_file);
    EXPECT_TRUE(pem);
    Result<security::tls::KeyPtr> key = security::tls::parse_key(*pem, key_file);
    EXPECT_TRUE(key);
    key_ = std::move(*key);
  }

  Result<std::vector<std::byte>> operator()(const TlsSigningRequest& request) {
    using Algorithm = TlsSigningRequest::Algorithm;
    if (Loop::current() != nullptr) ++on_loop;
    ++calls;
    last = request.algorithm;
    last_hash = request.hash;
    const auto* const data = reinterpret_cast<const unsigned char*>(request.data.data());
    std::vector<std::byte> signature(1024);
    auto* const out = reinterpret_cast<unsigned char*>(signature.data());
    std::size_t size = signature.size();
    bool done = false;
    if (request.algorithm == Algorithm::ed25519) {
      const security::tls::DigestContextPtr context(EVP_MD_CTX_new());
      done = EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
             EVP_DigestSign(context.get(), out, &size, data, request.data.size()) == 1;
    } else {
      const std::unique_ptr<EVP_PKEY_CTX, security::tls::Released<EVP_PKEY_CTX_free>> context(
          EVP_PKEY_CTX_new(key_.get(), nullptr));
      done = EVP_PKEY_sign_init(context.get()) == 1;
      if (request.algorithm == Algorithm::rsa_pss) {
        done = done && EVP_PKEY_CTX_set_rsa_padding(context.get(), RSA_PKCS1_PSS_PADDING) == 1 &&
               EVP_PKEY_CTX_set_rsa_pss_saltlen(context.get(), RSA_PSS_SALTLEN_DIGEST) == 1;
      }
      done = done && EVP_PKEY_CTX_set_signature_md(context.get(), hash_of(request)) == 1 &&
             EVP_PKEY_sign(context.get(), out, &size, data, request.data.size()) == 1;
    }
    static_cast<void>(security::tls::take_errors());
    if (!done) return fail(ErrorCode::internal, "the software cannot sign");
    signature.resize(size);
    return signature;
  }

  std::atomic<int> calls{0};
  std::atomic<int> on_loop{0};
  std::atomic<TlsSigningRequest::Algorithm> last{};
  std::atomic<TlsSigningRequest::Hash> last_hash{};

 private:
  static const EVP_MD* hash_of(const TlsSigningRequest& request) {
    switch (request.hash) {
      case TlsSigningRequest::Hash::sha224: return EVP_sha224();
      case TlsSigningRequest::Hash::sha384: return EVP_sha384();
      case TlsSigningRequest::Hash::sha512: return EVP_sha512();
      default: return EVP_sha256();
    }
  }
  security::tls::KeyPtr key_;
};

// Moves the key of a certificate from its file into a function.
inline TlsCertificate with_signer(const TlsCertificate& files, const std::shared_ptr<SoftwareSigner>& signer) {
  return {.certificate_file = files.certificate_file,
          .sign = [signer](const TlsSigningRequest& request) { return (*signer)(request); }};
}

}  // namespace hawser::testing_tools
