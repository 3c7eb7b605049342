#include "security/tls/context.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "base/try.h"
#include "security/tls/kernel.h"
#include "security/tls/private_key.h"
#include "security/tls/session.h"

namespace hawser::security::tls {
namespace {

// Forward secrecy and authenticated encryption only. TLS 1.3 has no others.
constexpr const char* ciphers_of_tls12 = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr const char* ciphers_of_keys = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr int security_level = 2;  // RSA and DH with 2048 bits or more, EC with 224 or more, SHA-256 or better.
constexpr int verify_depth_max = 8;
constexpr int peer_certificates_max = verify_depth_max + 2;  // The own one, those of issuers, and the root.

Result<void> refused(const std::string& what) {
  const std::string error = take_errors();
  return fail(ErrorCode::invalid_argument, error.empty() ? what : what + ": " + error);
}

int on_verify(int valid, X509_STORE_CTX* store) {
  if (valid == 1) return 1;
  // Only the peer's own certificate needs a list. For an issuer, one is used if there is one.
  if (X509_STORE_CTX_get_error(store) == X509_V_ERR_UNABLE_TO_GET_CRL && X509_STORE_CTX_get_error_depth(store) > 0) {
    X509_STORE_CTX_set_error(store, X509_V_OK);
    return 1;
  }
  const auto* const ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  // The text is an extra; without memory the verification fails likewise.
  try {
    TlsSession::of(ssl).refuse_certificate(X509_STORE_CTX_get_error(store), X509_STORE_CTX_get_current_cert(store));
  } catch (const std::exception&) {
    return 0;
  }
  return 0;
}

// Server: verifies the certificates of a client. OpenSSL keeps all of them, with 3 KiB and more for each, whether they
// are part of the chain or not.
int on_client_certificates(X509_STORE_CTX* store, void*) {
  const int count = sk_X509_num(X509_STORE_CTX_get0_untrusted(store));
  if (count <= peer_certificates_max) return X509_verify_cert(store);
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_CHAIN_TOO_LONG);
  const auto* const ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  try {
    TlsSession::of(ssl).refuse("the client sent " + std::to_string(count) + " certificates, more than " +
                               std::to_string(peer_certificates_max) +
                               ": its file may have its own certificate and those of its issuers");
  } catch (const std::exception&) {
    return 0;
  }
  return 0;
}

// Server: sets the certificate for the host that the client demands.
int on_certificate(SSL* ssl, void*) {
  const TlsSession& session = TlsSession::of(ssl);
  if (!session.context().has_certificates()) return 1;  // A client without a key finds no cipher.
  const char* const demanded = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  try {
    // The context has one certificate of each kind of key, also for other hosts. OpenSSL chooses among the kinds that
    // are set here one that the client supports.
    SSL_certs_clear(ssl);
    for (const TlsContext::Own* const own : session.context().select(demanded != nullptr ? demanded : "")) {
      STACK_OF(X509)* const issuers = sk_X509_new_null();
      if (issuers == nullptr) return 0;
      bool set = true;
      for (const X509Ptr& issuer : own->issuers) set = set && sk_X509_push(issuers, issuer.get()) > 0;
      set = set && SSL_use_cert_and_key(ssl, own->certificate.get(), own->key.get(), issuers, 1) == 1;
      sk_X509_free(issuers);
      if (!set) return 0;
    }
    return 1;
  } catch (const std::exception&) {
    return 0;
  }
}

// Server: adds the OCSP response of the certificate that on_certificate() has set.
int on_status_wanted(SSL* ssl, void*) {
  const OcspResponse* const response =
      TlsSession::of(ssl).context().ocsp_response_for(SSL_get_certificate(ssl), std::time(nullptr));
  if (response == nullptr) return SSL_TLSEXT_ERR_NOACK;
  void* const copy = OPENSSL_memdup(response->der.data(), response->der.size());
  if (copy == nullptr) return SSL_TLSEXT_ERR_NOACK;
  SSL_set_tlsext_status_ocsp_resp(ssl, copy, static_cast<long>(response->der.size()));
  return SSL_TLSEXT_ERR_OK;
}

// Client: called when the certificates were verified, also without a response.
int on_status(SSL* ssl, void*) {
  try {
    return TlsSession::of(ssl).accepts_status() ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

int on_alpn(SSL* ssl, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in, unsigned in_bytes,
            void*) {
  const std::string& ours = TlsSession::of(ssl).alpn();
  if (ours.empty()) return SSL_TLSEXT_ERR_NOACK;
  unsigned char* selected = nullptr;
  if (SSL_select_next_proto(&selected, out_bytes, reinterpret_cast<const unsigned char*>(ours.data()),
                            static_cast<unsigned>(ours.size()), in, in_bytes) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = selected;
  return SSL_TLSEXT_ERR_OK;
}

// Server: called for the session that a ticket will hold, and for the session that a ticket holds.
int on_ticket(SSL* ssl, void*) { return TlsContext::note_verified(SSL_get_session(ssl), INT64_MAX) ? 1 : 0; }

SSL_TICKET_RETURN on_returned_ticket(SSL* ssl, SSL_SESSION* session, const unsigned char*, std::size_t,
                                     SSL_TICKET_STATUS status, void*) {
  if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW) return SSL_TICKET_RETURN_IGNORE_RENEW;
  // Otherwise a handshake follows that verifies the certificates.
  if (!TlsSession::of(ssl).context().may_resume(session)) return SSL_TICKET_RETURN_IGNORE_RENEW;
  return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

// Server: the session of the key that the client names. Names that are not keys may be tickets.
int on_key_name(SSL* ssl, const unsigned char* name, std::size_t bytes, SSL_SESSION** session) {
  *session = nullptr;
  TlsSession& own = TlsSession::of(ssl);
  try {
    SslSessionPtr found = own.context().session_of_key({reinterpret_cast<const char*>(name), bytes});
    if (found == nullptr) return 1;
    // A resumed session would not say which key it began with.
    if (SSL_set_num_tickets(ssl, 0) != 1) return 0;
    own.note_key({reinterpret_cast<const char*>(name), bytes});
    *session = found.release();
    return 1;
  } catch (const std::exception&) {
    return 0;
  }
}

// Client: its key. OpenSSL asks again, with a hash, if the server demands another group.
int on_key_wanted(SSL* ssl, const EVP_MD* hash, const unsigned char** name, std::size_t* bytes, SSL_SESSION** session) {
  *session = nullptr;
  *name = nullptr;
  *bytes = 0;
  if (hash != nullptr && EVP_MD_is_a(hash, "SHA256") != 1) return 1;
  TlsSession& own = TlsSession::of(ssl);
  try {
    const std::string& key = own.context().options().shared_keys.front().name;
    SslSessionPtr found = own.context().session_of_key(key);
    if (found == nullptr) return 0;
    own.note_key(key);
    *name = reinterpret_cast<const unsigned char*>(key.data());
    *bytes = key.size();
    *session = found.release();
    return 1;
  } catch (const std::exception&) {
    return 0;
  }
}

// Client: a session that a later connection may resume.
int on_session(SSL* ssl, SSL_SESSION* session) {
  TlsSession& own = TlsSession::of(ssl);
  try {
    SslSessionPtr kept(session);
    if (TlsContext::note_verified(session, own.verified_until())) own.context().keep(own.host(), std::move(kept));
  } catch (const std::exception&) {
    // The session has been released.
  }
  return 1;
}

}  // namespace

Result<std::shared_ptr<const TlsContext>> TlsContext::load(const ContextOptions& options, const std::stop_token& stop) {
  const std::shared_ptr<TlsContext> made(new TlsContext(options));
  ERR_clear_error();
  TRY(made->begin());
  for (const TlsSharedKey& key : options.shared_keys) {
    TRY(made->add_key(key, stop));
  }
  for (const TlsCertificate& files : options.certificates) {
    TRY(made->add_own(files, stop));
  }
  TRY(made->add_trusted(stop));
  return made;
}

Result<void> TlsContext::begin() {
  context_.reset(SSL_CTX_new(options_.server ? TLS_server_method() : TLS_client_method()));
  SSL_CTX* const context = context_.get();
  if (context == nullptr) return refused("OpenSSL makes no context");
  SSL_CTX_set_security_level(context, security_level);
  const bool keys = !options_.shared_keys.empty();
  // Keys need TLS 1.3. A server with certificates, too, may speak TLS 1.2 to other clients.
  const bool only_keys = keys && options_.certificates.empty();
  const bool tls12 = options_.tls12 && !only_keys;
  if (SSL_CTX_set_min_proto_version(context, tls12 ? TLS1_2_VERSION : TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, 0) != 1 || SSL_CTX_set_cipher_list(context, ciphers_of_tls12) != 1) {
    return refused("OpenSSL refuses the versions or the ciphers of TLS");
  }
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                   SSL_OP_PRIORITIZE_CHACHA);
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_UNSAFE_LEGACY_RENEGOTIATION | SSL_OP_LEGACY_SERVER_CONNECT);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_max_early_data(context, 0);
  SSL_CTX_set_recv_max_early_data(context, 0);
  SSL_CTX_set_max_cert_list(context, static_cast<long>(options_.peer_certificate_bytes_max));
  SSL_CTX_set_verify_depth(context, verify_depth_max);
  SSL_CTX_set_timeout(context, static_cast<long>(options_.session_seconds_max));
  if (options_.kernel != TlsKernel::off) note_secrets(context);
  SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return -1; });
  if (options_.server && keys) SSL_CTX_set_psk_find_session_callback(context, on_key_name);
  if (!options_.server && keys) {
    // A key belongs to one hash.
    if (SSL_CTX_set_ciphersuites(context, ciphers_of_keys) != 1) return refused("OpenSSL refuses the ciphers of TLS");
    SSL_CTX_set_psk_use_session_callback(context, on_key_wanted);
  }
  if (options_.server) {
    constexpr std::string_view id = "hawser";
    SSL_CTX_set_session_id_context(context, reinterpret_cast<const unsigned char*>(id.data()), id.size());
    // Sessions travel in encrypted tickets, so that the server keeps none.
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_ticket_cb(context, on_ticket, on_returned_ticket, nullptr);
    SSL_CTX_set_cert_cb(context, on_certificate, nullptr);
    SSL_CTX_set_alpn_select_cb(context, on_alpn, nullptr);
    SSL_CTX_set_tlsext_status_cb(context, on_status_wanted);
    const int verify = options_.ca_file.empty()             ? SSL_VERIFY_NONE
                       : options_.peer_certificate_required ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                                                            : SSL_VERIFY_PEER;
    SSL_CTX_set_verify(context, verify, on_verify);
    SSL_CTX_set_cert_verify_callback(context, on_client_certificates, nullptr);
  } else {
    SSL_CTX_set_verify(context, options_.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE,
                       options_.verify ? on_verify : nullptr);
    if (options_.verify && !keys) {
      SSL_CTX_set_tlsext_status_type(context, TLSEXT_STATUSTYPE_ocsp);
      SSL_CTX_set_tlsext_status_cb(context, on_status);
    }
    SSL_CTX_set_session_cache_mode(
        context, options_.resumption ? SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL_STORE : SSL_SESS_CACHE_OFF);
    if (options_.resumption) SSL_CTX_sess_set_new_cb(context, on_session);
  }
  return {};
}

Result<void> TlsContext::add_own(const TlsCertificate& files, const std::stop_token& stop) {
  TRY(PemText&& pem, read_file(files.certificate_file, stop));
  TRY(std::vector<X509Ptr>&& chain, parse_certificates(pem, files.certificate_file));
  TRY(KeyPtr&& key, open_private_key(files, chain.front().get(), options_.signing, stop));
  Own own{std::move(chain.front()), std::move(key), {}, {}, {}};
  for (std::size_t i = 1; i < chain.size(); ++i) own.issuers.push_back(std::move(chain[i]));
  if (X509_check_private_key(own.certificate.get(), own.key.get()) != 1) {
    ERR_clear_error();
    return fail(ErrorCode::invalid_argument, "the key in " + files.key_file + " (" + key_text(own.key.get()) +
                                                 ") is not that of the certificate in " + files.certificate_file +
                                                 " (" + subject_text(own.certificate.get()) + ")");
  }
  // Checks the key's length by the security level, too.
  if (SSL_CTX_use_certificate(context_.get(), own.certificate.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context_.get(), own.key.get()) != 1) {
    return refused("OpenSSL refuses the certificate in " + files.certificate_file + " (" + key_text(own.key.get()) +
                   "; RSA needs 2048 bits or more, EC 224 or more)");
  }
  if (!options_.server) {
    for (const X509Ptr& issuer : own.issuers) {
      if (SSL_CTX_add1_chain_cert(context_.get(), issuer.get()) != 1) {
        return refused("OpenSSL refuses a certificate in " + files.certificate_file);
      }
    }
  }
  if (options_.server && !files.ocsp_file.empty()) {
    X509* const issuer = own.issuers.empty() ? nullptr : own.issuers.front().get();
    TRY(OcspResponse&& response, read_ocsp_response(files.ocsp_file, own.certificate.get(), issuer));
    own.ocsp = std::move(response);
    own.ocsp_file = files.ocsp_file;
  }
  own_.push_back(std::move(own));
  return {};
}

const OcspResponse* TlsContext::ocsp_response_for(const X509* certificate, std::int64_t now) const noexcept {
  for (const Own& own : own_) {
    if (own.certificate.get() == certificate) return own.ocsp.current(now) ? &own.ocsp : nullptr;
  }
  return nullptr;
}

std::string TlsContext::old_ocsp_files(std::int64_t now) const {
  std::string files;
  for (const Own& own : own_) {
    if (!own.ocsp.der.empty() && !own.ocsp.current(now)) files += (files.empty() ? "" : ", ") + own.ocsp_file;
  }
  return files;
}

Result<void> TlsContext::add_key(const TlsSharedKey& key, const std::stop_token& stop) {
  constexpr std::size_t name_bytes_max = 128;
  constexpr std::size_t key_bytes_min = 32;
  constexpr std::size_t key_bytes_max = 64;
  if (key.name.empty() || key.name.size() > name_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the name of the shared key in " + key.file + " has " +
                                                 std::to_string(key.name.size()) + " bytes: give it 1 to " +
                                                 std::to_string(name_bytes_max));
  }
  TRY(PemText&& digits, read_file(key.file, stop));
  std::array<unsigned char, key_bytes_max> bytes{};
  std::size_t count = 0;
  bool sound = true;
  for (const char one : digits.text()) {
    if (std::isspace(static_cast<unsigned char>(one)) != 0) continue;
    const int value = OPENSSL_hexchar2int(static_cast<unsigned char>(one));
    sound = value >= 0 && count < 2 * key_bytes_max;
    if (!sound) break;
    bytes[count / 2] = static_cast<unsigned char>(bytes[count / 2] << 4 | value);
    ++count;
  }
  SslSessionPtr session;
  if (sound && count % 2 == 0 && count >= 2 * key_bytes_min) {
    constexpr unsigned char aes_128_gcm_sha256[] = {0x13, 0x01};
    SslPtr ssl(SSL_new(context_.get()));
    const SSL_CIPHER* const cipher = ssl == nullptr ? nullptr : SSL_CIPHER_find(ssl.get(), aes_128_gcm_sha256);
    session.reset(SSL_SESSION_new());
    const bool made = session != nullptr && cipher != nullptr &&
                      SSL_SESSION_set1_master_key(session.get(), bytes.data(), count / 2) == 1 &&
                      SSL_SESSION_set_cipher(session.get(), cipher) == 1 &&
                      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
    OPENSSL_cleanse(bytes.data(), bytes.size());
    if (!made) return refused("OpenSSL refuses the shared key in " + key.file);
  } else {
    OPENSSL_cleanse(bytes.data(), bytes.size());
    return fail(
        ErrorCode::invalid_argument,
        key.file + " is not a shared key: write 64 to 128 hexadecimal digits, such as `openssl rand -hex 32` does");
  }
  if (!keys_.emplace(key.name, std::move(session)).second) {
    return fail(ErrorCode::invalid_argument, "two shared keys have the name '" + key.name + "'");
  }
  return {};
}

SslSessionPtr TlsContext::session_of_key(std::string_view name) const {
  const auto found = keys_.find(name);
  if (found == keys_.end()) return nullptr;
  SslSessionPtr copy(SSL_SESSION_dup(found->second.get()));
  if (copy == nullptr) throw std::bad_alloc();
  return copy;
}

Result<void> TlsContext::add_trusted(const std::stop_token& stop) {
  // A client with a key trusts nobody else.
  if (!options_.server && !options_.shared_keys.empty()) return {};
  X509_STORE* const store = SSL_CTX_get_cert_store(context_.get());
  if (options_.ca_file.empty()) {
    if (!options_.server && SSL_CTX_set_default_verify_paths(context_.get()) != 1) {
      return refused("the certificates of the system's issuers cannot be read: set TlsClientOptions::ca_file");
    }
  } else {
    TRY(PemText&& pem, read_file(options_.ca_file, stop));
    TRY(std::vector<X509Ptr>&& issuers, parse_certificates(pem, options_.ca_file));
    for (const X509Ptr& issuer : issuers) {
      if (X509_STORE_add_cert(store, issuer.get()) != 1 ||
          (options_.server && SSL_CTX_add_client_CA(context_.get(), issuer.get()) != 1)) {
        return refused("OpenSSL refuses a certificate in " + options_.ca_file);
      }
    }
  }
  for (const std::string& file : options_.crl_files) {
    TRY(PemText&& pem, read_file(file, stop));
    TRY(const std::vector<CrlPtr>& crls, parse_crls(pem, file));
    for (const CrlPtr& crl : crls) {
      if (const ASN1_TIME* const end = X509_CRL_get0_nextUpdate(crl.get())) {
        crls_end_ = std::min(crls_end_, unix_time(end));
      }
      if (X509_STORE_add_crl(store, crl.get()) != 1) return refused("OpenSSL refuses a list in " + file);
    }
  }
  if (!options_.crl_files.empty()) {
    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
  }
  return {};
}

std::vector<const TlsContext::Own*> TlsContext::select(std::string_view demanded) const {
  const std::string host(without_root_dot(demanded));
  std::vector<const Own*> selected;
  const auto add = [&selected](const Own& own) {
    const int kind = EVP_PKEY_get_base_id(X509_get0_pubkey(own.certificate.get()));
    const bool present = std::ranges::any_of(selected, [kind](const Own* const other) {
      return EVP_PKEY_get_base_id(X509_get0_pubkey(other->certificate.get())) == kind;
    });
    if (!present) selected.push_back(&own);
  };
  if (!host.empty()) {
    for (const Own& own : own_) {
      if (valid_for(own.certificate.get(), host)) add(own);
    }
  }
  if (!selected.empty()) return selected;
  for (const Own& own : own_) {
    if (same_names(own.certificate.get(), own_.front().certificate.get())) add(own);
  }
  return selected;
}

bool TlsContext::note_verified(SSL_SESSION* session, std::int64_t ends) noexcept {
  void* noted = nullptr;
  std::size_t size = 0;
  if (SSL_SESSION_get0_ticket_appdata(session, &noted, &size) == 1 && size != 0) return true;
  const std::array<std::int64_t, 2> times = {std::time(nullptr), ends};
  return SSL_SESSION_set1_ticket_appdata(session, times.data(), sizeof times) == 1;
}

bool TlsContext::may_resume(SSL_SESSION* session) const noexcept {
  void* noted = nullptr;
  std::size_t size = 0;
  std::array<std::int64_t, 2> times{};
  if (SSL_SESSION_get0_ticket_appdata(session, &noted, &size) != 1 || size != sizeof times) return false;
  std::memcpy(times.data(), noted, sizeof times);
  const auto [verified, ends] = times;
  const std::int64_t now = std::time(nullptr);
  if (now >= ends || now < verified || now - verified >= options_.session_seconds_max || now >= crls_end_) return false;
  const X509* const certificate = SSL_SESSION_get0_peer(session);
  return certificate == nullptr || now < unix_time(X509_get0_notAfter(certificate));
}

void TlsContext::keep(const std::string& server, SslSessionPtr session) const {
  const std::lock_guard lock(mutex_);
  if (sessions_.size() >= servers_max && !sessions_.contains(server)) sessions_.erase(sessions_.begin());
  std::vector<SslSessionPtr>& kept = sessions_[server];
  if (kept.size() >= sessions_per_server_max) kept.erase(kept.begin());
  kept.push_back(std::move(session));
}

// Each session is used once, so that connections cannot be linked by their tickets (RFC 8446, C.4).
SslSessionPtr TlsContext::take(const std::string& server) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(server);
  if (found == sessions_.end()) return nullptr;
  SslSessionPtr session = std::move(found->second.back());
  found->second.pop_back();
  if (found->second.empty()) sessions_.erase(found);
  return may_resume(session.get()) ? std::move(session) : nullptr;
}

}  // namespace hawser::security::tls
