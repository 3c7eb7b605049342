#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"

namespace hawser::cluster {

// The part of gRPC's bootstrap that is used.
struct XdsBootstrap {
  std::vector<std::string> servers;  // Addresses, each "host:port", in the order of preference. At least one.
  std::string node;                  // An encoded Node.
  std::string listener_template;     // "%s" stands for the name. Empty: the name itself.
};

// Reads the JSON. `secured`: the connections are protected. Fails with `invalid_argument`; the text names the field.
Result<XdsBootstrap> parse_xds_bootstrap(std::string_view json, bool secured);

// The text that the environment variables of gRPC give.
Result<std::string> find_xds_bootstrap();

}  // namespace hawser::cluster
