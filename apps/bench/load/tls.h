#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "bench/run/options.h"
#include "hawser/client.h"
#include "hawser/server.h"

// TLS of measured servers and clients, for the transport "tls" and with --tls.
namespace hawser::bench {

// Whether this build has TLS.
bool has_tls() noexcept;
// Writes a certificate and its issuer's into `folder`, for programs that read files. Throws std::runtime_error.
BenchTlsFiles issue_tls_files(const std::string& folder);
// Return the security of either side; null if neither `transport` nor `options` asks for it. The server has the
// certificate of RunOptions::tls_files, or makes one for itself. The client accepts any.
std::shared_ptr<transport::ServerSecurity> server_security(const RunOptions& options, std::string_view transport);
std::shared_ptr<transport::ClientSecurity> client_security(const RunOptions& options, std::string_view transport);

}  // namespace hawser::bench
