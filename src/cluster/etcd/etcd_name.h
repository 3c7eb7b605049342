#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"

namespace hawser::cluster {

// A service in etcd.
struct EtcdName {
  std::vector<std::string> members;  // Addresses, each "host:port". At least one.
  std::string prefix;                // The keys of the endpoints begin so: "<service>/".
};

// Parses "<member>,<member>.../<service>". Fails with `invalid_argument`.
Result<EtcdName> parse_etcd_name(std::string_view target);

}  // namespace hawser::cluster
