#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "hawser/error.h"
#include "hawser/server.h"

namespace hawser::programs {

// Options of a server with TLS, as in TlsServerOptions. Without a certificate the server speaks plain text.
struct TlsServerGiven {
  std::string certificate_file = {};
  std::string key_file = {};
  std::string ocsp_file = {};
  std::string client_ca_file = {};
  std::string policy = "required";
  std::string protection = "authenticated";
};

// Adds the options of TLS to `command`, a server. `given` outlives the parsing.
void add_tls_server_options(CLI::App& command, TlsServerGiven& given);

// Sets ServerOptions::security. Fails if TLS is demanded and this build does not have it.
Result<void> enable_tls(ServerOptions& options, const TlsServerGiven& given);

}  // namespace hawser::programs
