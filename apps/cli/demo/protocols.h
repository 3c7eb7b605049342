#pragma once

#include <optional>
#include <string>

#include "hawser/client.h"
#include "hawser/server.h"
#include "hawser/time.h"

namespace hawser::cli {

// Enable the protocol if this build has it.
void enable_grpc(Server& server);
void enable_baidu_std(Server& server);

// The options of a client of one protocol. Empty if this build does not have it.
std::optional<ClientOptions> demo_grpc_options();
std::optional<ClientOptions> demo_baidu_std_options();

// Makes one call of each kind over each protocol and prints a table. Returns the exit status.
int show_calls(const std::string& address, Duration timeout);

}  // namespace hawser::cli
