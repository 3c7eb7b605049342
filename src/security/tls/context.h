#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/tls.h"
#include "security/tls/certificate.h"
#include "security/tls/ocsp.h"
#include "security/tls/signing_key.h"

namespace hawser::security::tls {

// The options that a context is made of, for either side.
struct ContextOptions {
  bool server = false;
  std::vector<TlsCertificate> certificates = {};
  std::vector<TlsSharedKey> shared_keys = {};  // Client: one at most.
  std::string ca_file = {};
  std::vector<std::string> crl_files = {};
  bool ocsp_required = false;              // Client.
  bool peer_certificate_required = false;  // Server: with ca_file.
  bool verify = true;                      // Client: the server's certificate is verified.
  bool tls12 = true;
  bool resumption = true;
  std::size_t peer_certificate_bytes_max = 0;
  std::size_t client_hello_bytes_max = 0;  // Server. 0: that of OpenSSL, 128 KiB.
  // A session is resumed for this long after the handshake that verified the certificates, whatever tickets followed.
  std::int64_t session_seconds_max = 3600;
  // TLS 1.3: the keys of a direction are replaced after this number of records. AES-GCM is safe for 2^24.5 of full
  // length (RFC 8446, 5.5). TLS 1.2 cannot replace keys: the connection ends after twice as many.
  std::uint64_t records_per_key = std::uint64_t{1} << 23;
  std::shared_ptr<SigningCounters> signing = std::make_shared<SigningCounters>();
  TlsKernel kernel = TlsKernel::off;
};

// Everything that sessions share: certificates, keys, trusted issuers, and the keys of session tickets. Made of files,
// and not changed afterwards. Thread-safe.
class TlsContext {
 public:
  // `stop`: for a function that makes a trial signature, and for a pipe in place of a file.
  static Result<std::shared_ptr<const TlsContext>> load(const ContextOptions& options,
                                                        const std::stop_token& stop = {});

  SSL_CTX* get() const noexcept { return context_.get(); }
  const ContextOptions& options() const noexcept { return options_; }
  struct Own {
    X509Ptr certificate;
    KeyPtr key;
    std::vector<X509Ptr> issuers;
    OcspResponse ocsp;
    std::string ocsp_file;
  };
  // Returns the certificates that are valid for the host that a client demands (empty: none), one of each kind of key,
  // in their order. If there is none, the first one of all, and those with the same names.
  std::vector<const Own*> select(std::string_view demanded) const;
  bool has_certificates() const noexcept { return !own_.empty(); }
  // The OCSP response to be sent with this certificate of select() at the time `now`, in seconds since 1970; null if
  // there is none.
  const OcspResponse* ocsp_response_for(const X509* certificate, std::int64_t now) const noexcept;
  // The files of responses that are not sent at that time, with commas; empty: none.
  std::string old_ocsp_files(std::int64_t now) const;

  // The session that begins with the key of that name; null if there is none. Throws std::bad_alloc.
  SslSessionPtr session_of_key(std::string_view name) const;

  // Notes in `session` when the certificates were verified and until when that holds, in seconds since 1970, unless it
  // notes that already: a session that continues another one keeps the times of the first. Returns false without
  // memory.
  static bool note_verified(SSL_SESSION* session, std::int64_t ends) noexcept;
  // True if a handshake may resume `session`, although it verifies no certificate again.
  bool may_resume(SSL_SESSION* session) const noexcept;

  // Client: sessions to resume, by server.
  void keep(const std::string& server, SslSessionPtr session) const;
  SslSessionPtr take(const std::string& server) const;
  static constexpr std::size_t servers_max = 1024;
  static constexpr std::size_t sessions_per_server_max = 8;

 private:
  explicit TlsContext(const ContextOptions& options) : options_(options) {}
  Result<void> begin();
  Result<void> add_own(const TlsCertificate& files, const std::stop_token& stop);
  Result<void> add_trusted(const std::stop_token& stop);
  Result<void> add_key(const TlsSharedKey& key, const std::stop_token& stop);

  const ContextOptions options_;
  ContextPtr context_;
  std::vector<Own> own_;
  std::map<std::string, SslSessionPtr, std::less<>> keys_;  // By name; each as the session that begins with it.
  std::int64_t crls_end_ = INT64_MAX;  // When the first of the lists becomes too old, in seconds since 1970.
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<SslSessionPtr>> sessions_;  // Guarded by mutex_.
};

}  // namespace hawser::security::tls
