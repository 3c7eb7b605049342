#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hawser/grpc_client.h"

// The cases of gRPC's interoperability tests, as a client.
namespace hawser::grpc_interop {

// The names of all cases, in the order in which they run.
std::span<const std::string_view> case_names();

// Runs one case against the server at `address`, on a loop of its own, over TLS if `security` is not null. Returns
// nothing if it succeeds, or else the reason why it failed.
std::string run_case(std::string_view name, const std::string& address,
                     std::shared_ptr<transport::ClientSecurity> security = {});

}  // namespace hawser::grpc_interop
