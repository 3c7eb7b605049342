#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/doctor/host.h"
#include "hawser/error.h"
#include "hawser/server.h"

namespace hawser::cli::doctor {

inline constexpr std::string_view default_port = "18540";
inline constexpr std::uint32_t block_bytes = 1 << 20;

// The methods of `hawser doctor --serve`, which the other end calls.
namespace host {

// The facts of the server's host, read now.
HostFacts facts();
// Receives a block. Returns its size.
std::uint32_t absorb(std::string_view block);
// Returns a block of so many bytes, at most block_bytes.
Result<std::string_view> produce(std::uint32_t bytes);

}  // namespace host

// Options of a server for one other doctor: few connections and little memory. It has no authentication.
ServerOptions host_server_options(const std::string& listen);
void add_host_methods(Server& server);

// Serves for so many seconds, or until a signal ends it. Returns the exit status.
int serve_host(const std::string& listen, unsigned seconds);

}  // namespace hawser::cli::doctor
