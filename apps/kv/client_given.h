#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "hawser/client.h"
#include "hawser/error.h"

namespace hawser::kv {

// The options of commands that connect to a server.
struct ClientGiven {
  std::string connect = "127.0.0.1:6379";
  std::string password_file = {};
  std::shared_ptr<transport::ClientSecurity> security = {};  // Null: no TLS.
};

// Adds the options to `command`. `given` outlives the parsing.
void add_client_options(CLI::App& command, ClientGiven& given);

// Reads the password file, if there is one.
Result<ClientOptions> client_options(const ClientGiven& given);

}  // namespace hawser::kv
