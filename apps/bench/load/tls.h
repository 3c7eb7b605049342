#pragma once

#include "bench/run/options.h"
#include "hawser/client.h"
#include "hawser/server.h"

// TLS of measured servers and clients, for the transport "tls" and with --tls.
namespace hawser::bench {

// Whether this build has TLS.
bool has_tls() noexcept;
// Return the security of either side; null if neither `transport` nor `options` asks for it. The server makes a
// certificate for itself. The client accepts any.
std::shared_ptr<transport::ServerSecurity> server_security(const Options& options, std::string_view transport);
std::shared_ptr<transport::ClientSecurity> client_security(const Options& options, std::string_view transport);

}  // namespace hawser::bench
