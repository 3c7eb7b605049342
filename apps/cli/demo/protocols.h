#pragma once

#include <string>

#include "hawser/error.h"
#include "hawser/server.h"

namespace hawser::cli {

// Enable the protocol if this build has it.
void enable_grpc(Server& server);
void enable_baidu_std(Server& server);

// As in TlsServerOptions. Without a certificate the server speaks plain text.
struct DemoTls {
  std::string certificate_file;
  std::string key_file;
  std::string client_ca_file;
  std::string policy = "required";
};
// Fails if TLS is demanded and this build does not have it.
Result<void> enable_tls(ServerOptions& options, const DemoTls& tls);

}  // namespace hawser::cli
