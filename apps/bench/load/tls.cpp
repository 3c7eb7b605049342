#include "bench/load/tls.h"

#include <stdexcept>
#include <string>

#include "base/temporary_folder.h"
#include "hawser/tls.h"
#include "security/tls/authority.h"

namespace hawser::bench {
namespace {

bool wanted(const RunOptions& options, std::string_view transport) { return options.tls || transport == "tls"; }

TlsProtection protection_of(const RunOptions& options) {
  if (options.protection == "signed") return TlsProtection::signed_messages;
  if (options.protection == "sealed") return TlsProtection::sealed_messages;
  if (options.protection == "encrypted") return TlsProtection::encrypted_stream;
  return TlsProtection::authenticated;
}

TlsKernel kernel_of(const RunOptions& options) {
  if (options.tls_kernel == "automatic") return TlsKernel::automatic;
  return options.tls_kernel == "required" ? TlsKernel::required : TlsKernel::off;
}

}  // namespace

bool has_tls() noexcept { return true; }

BenchTlsFiles issue_tls_files(const std::string& folder) {
  security::tls::Authority authority(folder, "bench");
  const TlsCertificate files = authority.issue("server");
  return {.ca = authority.ca_file(), .certificate = files.certificate_file, .key = files.key_file};
}

std::shared_ptr<transport::ServerSecurity> server_security(const RunOptions& options, std::string_view transport) {
  if (!wanted(options, transport)) return nullptr;
  // Files are read only once, so that they are removed at once.
  const TemporaryFolder folder;
  const BenchTlsFiles files =
      options.tls_files.certificate.empty() ? issue_tls_files(folder.path().string()) : options.tls_files;
  TlsServerOptions with;
  with.certificates = {{files.certificate, files.key}};
  with.protection = protection_of(options);
  with.kernel = kernel_of(options);
  with.reload_interval = forever;
  TlsServer security(with);
  if (const Result<void> loaded = security.reload(); !loaded) throw std::runtime_error(loaded.error().text);
  return security;
}

std::shared_ptr<transport::ClientSecurity> client_security(const RunOptions& options, std::string_view transport) {
  if (!wanted(options, transport)) return nullptr;
  TlsClientOptions with;
  with.accept_any_server = true;
  with.protection = protection_of(options);
  with.kernel = kernel_of(options);
  with.reload_interval = forever;
  return TlsClient(with);
}

}  // namespace hawser::bench
