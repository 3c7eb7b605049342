#pragma once

#include <ucp/api/ucp.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "transport/ucx/core/ucp_library.h"
#include "transport/ucx/ucx_transport.h"

namespace hawser::transport {

// Returns the text that `print` writes to a file. UCX offers some facts only in printed form.
std::string ucx_printed(const std::function<void(std::FILE*)>& print);

// Returns the transports that an endpoint uses, read from UCX's printed description. The list is empty if the format of
// that description is not known.
std::vector<UcxReport::Transport> ucx_lanes(const UcpLibrary& ucp, ucp_ep_h endpoint);

}  // namespace hawser::transport
