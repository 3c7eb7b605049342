#pragma once

#include <ucp/api/ucp.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "transport/ucx/core/ucp_library.h"
#include "transport/ucx/ucx_transport.h"

namespace hawser::transport {

// What `print` writes into a file: UCX prints what it does not tell otherwise.
std::string ucx_printed(const std::function<void(std::FILE*)>& print);

// The transports that an endpoint uses, as UCX prints them. Empty if it prints them in a way that we do not know.
std::vector<UcxReport::Transport> ucx_lanes(const UcpLibrary& ucp, ucp_ep_h endpoint);

}  // namespace hawser::transport
