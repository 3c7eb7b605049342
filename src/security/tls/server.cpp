#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/loop.h"
#include "hawser/tls.h"
#include "security/tls/path_keys.h"
#include "security/tls/private_key.h"
#include "security/tls/stream.h"
#include "transport/stream_security.h"

namespace hawser {
namespace {

constexpr std::string_view server_streams_only =
    "the server's TlsServerOptions::protection is encrypted_stream, and other transports do not encrypt";

security::tls::ContextOptions context_options(const TlsServerOptions& options) {
  return {.server = true,
          .certificates = options.certificates,
          .shared_keys = options.shared_keys,
          .ca_file = options.client_ca_file,
          .crl_files = options.crl_files,
          .peer_certificate_required = options.client_certificate_required,
          .tls12 = options.tls12,
          .peer_certificate_bytes_max = options.peer_certificate_bytes_max,
          .client_hello_bytes_max = options.client_hello_bytes_max +
                                    (options.client_ca_file.empty() ? 0 : options.peer_certificate_bytes_max),
          .kernel = options.kernel};
}

bool from_this_host(const transport::Stream& stream) {
  const std::string peer = stream.peer();
  return peer.starts_with("127.") || peer.starts_with("[::1]:") || peer.starts_with("[::ffff:127.") ||
         peer.starts_with("unix:");
}

}  // namespace

struct TlsServer::State final : transport::ServerSecurity {
  explicit State(TlsServerOptions given)
      : options(std::move(given)),
        shared(std::make_shared<security::tls::TlsShared>(context_options(options), options.reload_interval,
                                                          options.handshake_threads, options.handshakes_max,
                                                          options.held_bytes_max)) {}

  Result<void> check() const {
    if (options.certificates.empty() && options.shared_keys.empty()) {
      return fail(ErrorCode::invalid_argument,
                  "TlsServerOptions::certificates and shared_keys are empty: a server needs a certificate or a key");
    }
    if (options.handshakes_max == 0) {
      return fail(ErrorCode::invalid_argument, "TlsServerOptions::handshakes_max (0) is less than 1: raise it");
    }
    constexpr std::size_t held_bytes_min = std::size_t{1} << 20;
    if (options.held_bytes_max < held_bytes_min) {
      return fail(ErrorCode::invalid_argument, "TlsServerOptions::held_bytes_max (" +
                                                   count_text(options.held_bytes_max, "byte") + ") is less than " +
                                                   std::to_string(held_bytes_min) + " bytes: raise it");
    }
    constexpr std::size_t hello_bytes_min = 1024;
    if (options.client_hello_bytes_max < hello_bytes_min) {
      return fail(ErrorCode::invalid_argument,
                  "TlsServerOptions::client_hello_bytes_max (" + count_text(options.client_hello_bytes_max, "byte") +
                      ") is less than " + std::to_string(hello_bytes_min) + " bytes: raise it");
    }
    const std::size_t of_certificates = options.client_ca_file.empty() ? 0 : options.peer_certificate_bytes_max;
    std::size_t left = options.held_bytes_max - security::tls::TlsStream::handshake_bytes;
    left -= std::min(left, of_certificates);
    if (options.client_hello_bytes_max > left) {
      return fail(
          ErrorCode::invalid_argument,
          "TlsServerOptions::held_bytes_max (" + count_text(options.held_bytes_max, "byte") +
              ") is less than one handshake may hold, which is " +
              std::to_string(security::tls::TlsStream::handshake_bytes) + " bytes + client_hello_bytes_max (" +
              std::to_string(options.client_hello_bytes_max) +
              (of_certificates == 0 ? std::string()
                                    : " bytes) + peer_certificate_bytes_max (" + std::to_string(of_certificates)) +
              " bytes): raise it");
    }
    for (const TlsCertificate& files : options.certificates) {
      TRY(security::tls::check_threads(files, options.handshake_threads, "TlsServerOptions"));
    }
    return {};
  }
  Result<void> prepare() override {
    TRY(check());
    Result<void> prepared = shared->store.prepare();
    if (!prepared || shared->kernel == TlsKernel::off) return prepared;
    // The first handshakes wait less for it, or not at all. A loop does not wait.
    if (Loop::current() == nullptr) {
      shared->examine_kernel();
    } else {
      shared->examine_kernel_later();
    }
    return prepared;
  }

  // The record of a handshake, of version 3.x (RFC 8446, 5.1).
  Match match(Bytes first) const noexcept override {
    if (first.empty()) return Match::more;
    if (first[0] != std::byte{0x16}) return Match::no;
    if (first.size() < 2) return Match::more;
    return first[1] == std::byte{0x03} ? Match::yes : Match::no;
  }

  std::unique_ptr<transport::Stream> protect(Loop&, std::unique_ptr<transport::Stream> stream, Bytes first,
                                             const std::string& protocols) override {
    // The pool's threads end before `shared` does, so the function may refer to it.
    auto make = [&store = shared->store, names = protocols]() -> Result<std::unique_ptr<security::tls::TlsSession>> {
      return std::make_unique<security::tls::TlsSession>(store.current(), names);
    };
    return std::make_unique<security::tls::TlsStream>(shared, std::move(stream), std::move(make), true, first);
  }

  std::string refusal_of_plain(const transport::Stream& stream) const override {
    if (options.policy == TlsPolicy::allowed) return {};
    const bool from_hosts = options.policy == TlsPolicy::required_from_hosts;
    if (from_hosts && from_this_host(stream)) return {};
    return "this server requires TLS, and the connection is in plain text: connect with TLS (https for HTTP; "
           "ClientOptions::security = TlsClient for this library)";
  }
  // `secured` is a stream of protect().
  std::string_view stream_only(const transport::Stream& secured) const noexcept override {
    if (options.protection == TlsProtection::encrypted_stream) return server_streams_only;
    return static_cast<const security::tls::TlsStream&>(secured).session().no_export_reason();
  }
  transport::PathProtection path_protection() const noexcept override {
    return security::tls::path_protection(options.protection);
  }
  Result<transport::PathSecurity> secure_path(transport::Stream& secured, const transport::PathTerms& terms) override {
    return security::tls::secure_path(static_cast<security::tls::TlsStream&>(secured), terms,
                                      security::tls::Side::server);
  }

  const TlsServerOptions options;
  const std::shared_ptr<security::tls::TlsShared> shared;
};

TlsServer::TlsServer(TlsServerOptions options) : state_(std::make_shared<State>(std::move(options))) {}
TlsServer::operator std::shared_ptr<transport::ServerSecurity>() const { return state_; }

Result<void> TlsServer::reload() {
  TRY(state_->check());
  return state_->shared->store.reload();
}

TlsCounters TlsServer::counters() const noexcept { return security::tls::counters_of(*state_->shared); }

}  // namespace hawser
