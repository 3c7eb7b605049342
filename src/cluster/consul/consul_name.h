#pragma once

#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::cluster {

// A service in Consul.
struct ConsulName {
  std::string agent;    // "host:port". Empty: that of ConsulOptions.
  std::string service;  // Percent-encoded.
  std::string query;    // Parameters of the request, each behind an "&". Percent-encoded.
};

// Parses "<agent>/<service>?<parameters>", or "<service>?<parameters>". Fails with `invalid_argument`.
Result<ConsulName> parse_consul_name(std::string_view target);

}  // namespace hawser::cluster
