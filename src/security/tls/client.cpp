#include <openssl/evp.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "exec/condition.h"
#include "hawser/tls.h"
#include "pipe/null_sink.h"
#include "security/tls/certificate.h"
#include "security/tls/path_keys.h"
#include "security/tls/private_key.h"
#include "security/tls/stream.h"
#include "transport/stream_security.h"

namespace hawser {
namespace {

constexpr std::string_view client_streams_only =
    "the client's TlsClientOptions::protection is encrypted_stream, and other transports do not encrypt";

constexpr std::size_t name_bytes_max = 255;  // The limit of DNS, and of host names in TLS (RFC 6066, 3).

security::tls::ContextOptions context_options(const TlsClientOptions& options) {
  return {.certificates = options.certificate.certificate_file.empty()
                              ? std::vector<TlsCertificate>()
                              : std::vector<TlsCertificate>{options.certificate},
          .shared_keys = options.shared_key.file.empty() ? std::vector<TlsSharedKey>()
                                                         : std::vector<TlsSharedKey>{options.shared_key},
          .ca_file = options.ca_file,
          .crl_files = options.crl_files,
          .ocsp_required = options.ocsp_required,
          .verify = !options.accept_any_server || !options.shared_key.file.empty(),
          .tls12 = options.tls12,
          .resumption = options.resumption && options.shared_key.file.empty(),
          .peer_certificate_bytes_max = options.peer_certificate_bytes_max,
          .kernel = options.kernel};
}

// The host of "host:port" or "[v6]:port"; empty for a Unix socket.
std::string host_of(const std::string& address) {
  if (address.starts_with("unix:")) return {};
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return host;
}

// SHA-256 of a sequence of facts.
class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    good_ = context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }
  void add(std::string_view text) {
    add(text.size());
    update(text.data(), text.size());
  }
  void add(std::uint64_t number) { update(&number, sizeof number); }
  void add_file(const std::string& path) {
    add(std::string_view(path));
    if (path.empty()) return;
    const Result<security::tls::PemText> file = security::tls::read_file(path);
    add(file ? file->text() : std::string_view());
  }
  // Empty if OpenSSL has failed.
  std::string take() {
    std::string bytes(EVP_MAX_MD_SIZE, '\0');
    unsigned size = 0;
    good_ = good_ && EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(bytes.data()), &size) == 1;
    if (!good_) static_cast<void>(security::tls::take_errors());
    bytes.resize(good_ ? size : 0);
    return bytes;
  }

 private:
  void update(const void* data, std::size_t size) {
    good_ = good_ && EVP_DigestUpdate(context_.get(), data, size) == 1;
  }
  security::tls::DigestContextPtr context_;
  bool good_ = false;
};

// Waits for the end of a handshake.
struct Opening final : transport::StreamSink {
  explicit Opening(Loop& loop) : changed(loop) {}
  void expire() noexcept {
    late = true;
    changed.notify_all();
  }
  MutableBytes receive_space() override { return pipe::discard_buffer(); }
  void received(std::size_t) override {}
  void sendable(std::size_t) override {}
  void ended(const Error& reason) override {
    error = reason;
    changed.notify_all();
  }

  exec::Condition changed;
  bool open = false;
  bool late = false;
  std::optional<Error> error;
  MemberTimer<&Opening::expire> timer{*this};
};

}  // namespace

struct TlsClient::State final : transport::ClientSecurity {
  explicit State(TlsClientOptions given)
      : options(std::move(given)),
        shared(std::make_shared<security::tls::TlsShared>(context_options(options), options.reload_interval,
                                                          options.handshake_threads, options.handshakes_max)) {}

  Task<Result<std::unique_ptr<transport::Stream>>> protect(Loop& loop, std::unique_ptr<transport::Stream> stream,
                                                           std::string address, std::string_view protocol,
                                                           Time deadline) override {
    std::string host = options.server_name.empty() ? host_of(address) : options.server_name;
    host.resize(security::tls::without_root_dot(host).size());
    if (host.empty() && !options.accept_any_server && options.shared_key.file.empty()) {
      co_return fail(Error::of_connection(
          ErrorCode::invalid_argument,
          "TLS to " + address + " needs the name of the server: set TlsClientOptions::server_name"));
    }
    if (!host.empty() && (host.size() > name_bytes_max || host.front() == '.' || host.contains('\0'))) {
      co_return fail(Error::of_connection(
          ErrorCode::invalid_argument,
          "no certificate can be valid for the name of the server, which has " + count_text(host.size(), "byte") +
              ": set TlsClientOptions::server_name to a host name of at most " + std::to_string(name_bytes_max) +
              " bytes that does not begin with a dot and has no NUL"));
    }
    if (Result<void> sound =
            security::tls::check_threads(options.certificate, options.handshake_threads, "TlsClientOptions");
        !sound) {
      sound.error().scope = ErrorScope::connection;
      co_return fail(std::move(sound.error()));
    }
    // The pool's threads end before `shared` does, so the function may refer to it.
    auto make = [&store = shared->store, host,
                 name = std::string(protocol)]() -> Result<std::unique_ptr<security::tls::TlsSession>> {
      TRY(store.prepare());
      std::shared_ptr<const security::tls::TlsContext> context = store.current();
      security::tls::SslSessionPtr resumed = context->take(host);
      return std::make_unique<security::tls::TlsSession>(std::move(context), host, name, std::move(resumed));
    };
    Opening opening(loop);
    auto secured = std::make_unique<security::tls::TlsStream>(shared, std::move(stream), std::move(make), false);
    secured->when_open([&opening] {
      opening.open = true;
      opening.changed.notify_all();
    });
    opening.timer.start(loop, deadline);
    secured->start(loop, opening);
    while (!opening.open && !opening.late && !opening.error) {
      co_await opening.changed.wait();
    }
    if (opening.error) {
      opening.error->text = "cannot connect to " + address + ": " + opening.error->text;
      co_return fail(std::move(*opening.error));
    }
    if (!opening.open) {
      co_return fail(
          Error::of_connection(ErrorCode::unavailable, "cannot connect to " + address +
                                                           ": the server did not complete the TLS handshake in time "
                                                           "(connect_timeout)"));
    }
    secured->set_sink(pipe::null_sink());
    co_return std::unique_ptr<transport::Stream>(std::move(secured));
  }
  // `secured` is a stream of protect().
  std::string_view stream_only(const transport::Stream& secured) const noexcept override {
    if (options.protection == TlsProtection::encrypted_stream) return client_streams_only;
    return static_cast<const security::tls::TlsStream&>(secured).session().no_export_reason();
  }
  transport::PathProtection path_protection() const noexcept override {
    return security::tls::path_protection(options.protection);
  }
  Result<transport::PathSecurity> secure_path(transport::Stream& secured, const transport::PathTerms& terms) override {
    return security::tls::secure_path(static_cast<security::tls::TlsStream&>(secured), terms,
                                      security::tls::Side::client);
  }

  std::string identity() const override {
    // All members: with another one, this does not compile.
    const auto& [ca_file, crl_files, ocsp_required, certificate, shared_key, server_name, protection, tls12,
                 accept_any_server, resumption, reload_interval, handshake_threads, handshakes_max,
                 peer_certificate_bytes_max, kernel] = options;
    Digest digest;
    digest.add_file(ca_file);
    digest.add(crl_files.size());
    for (const std::string& file : crl_files) digest.add_file(file);
    digest.add_file(certificate.certificate_file);
    // A key in a token, and a function, must be those of the certificate.
    if (!security::tls::signs_elsewhere(certificate)) digest.add_file(certificate.key_file);
    digest.add(std::string_view(shared_key.name));
    digest.add_file(shared_key.file);
    digest.add(std::string_view(server_name));
    digest.add(static_cast<std::uint64_t>(protection));
    for (const bool flag : {ocsp_required, tls12, accept_any_server, resumption}) digest.add(std::uint64_t{flag});
    digest.add(static_cast<std::uint64_t>(reload_interval.count()));
    digest.add(handshake_threads);
    digest.add(handshakes_max);
    digest.add(peer_certificate_bytes_max);
    digest.add(static_cast<std::uint64_t>(kernel));
    return digest.take();
  }

  const TlsClientOptions options;
  const std::shared_ptr<security::tls::TlsShared> shared;
};

TlsClient::TlsClient(TlsClientOptions options) : state_(std::make_shared<State>(std::move(options))) {}
TlsClient::operator std::shared_ptr<transport::ClientSecurity>() const { return state_; }
Result<void> TlsClient::reload() { return state_->shared->store.reload(); }
TlsCounters TlsClient::counters() const noexcept { return security::tls::counters_of(*state_->shared); }

}  // namespace hawser
