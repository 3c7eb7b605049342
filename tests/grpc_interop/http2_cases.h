#pragma once

#include <span>
#include <string>
#include <string_view>

// The cases of gRPC's negative tests of HTTP/2, as a client of tests/grpc_interop/http2_server.py.
namespace hawser::grpc_interop {

std::span<const std::string_view> http2_case_names();

// Runs one case on a loop of its own. Returns nothing if it succeeds, or else the reason why it failed. The server
// checks its part when the client has closed its connections.
std::string run_http2_case(std::string_view name, const std::string& address);

}  // namespace hawser::grpc_interop
