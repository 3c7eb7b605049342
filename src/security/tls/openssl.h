#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

// Owners of OpenSSL's objects, and the texts of its errors.
namespace hawser::security::tls {

// Gives OpenSSL functions for its memory, and keeps it usable until the process ends. Called once, before main().
bool prepare_openssl() noexcept;

// Threads of loops may end connections while the process exits. OpenSSL registers a function with atexit() that frees
// what these threads use. This prevents it, if the program has not used OpenSSL before main().
inline const bool openssl_outlives_main = prepare_openssl();

template <auto release>
struct Released {
  template <class T>
  void operator()(T* object) const noexcept {
    release(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Released<BIO_free_all>>;
using SslPtr = std::unique_ptr<SSL, Released<SSL_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Released<SSL_CTX_free>>;
using SslSessionPtr = std::unique_ptr<SSL_SESSION, Released<SSL_SESSION_free>>;
using X509Ptr = std::unique_ptr<X509, Released<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Released<EVP_PKEY_free>>;
using CipherContextPtr = std::unique_ptr<EVP_CIPHER_CTX, Released<EVP_CIPHER_CTX_free>>;
using DigestContextPtr = std::unique_ptr<EVP_MD_CTX, Released<EVP_MD_CTX_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, Released<X509_CRL_free>>;

// Takes the errors of this thread from OpenSSL's queue. Returns the first one as text; empty if there is none.
std::string take_errors();
// Returns the part of an OpenSSL error that is for people, such as "no start line".
std::string reason_text(unsigned long error);

}  // namespace hawser::security::tls
