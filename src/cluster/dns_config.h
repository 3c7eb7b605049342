#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/dns_answer.h"
#include "hawser/error.h"

namespace hawser::cluster {

// The facts by which a choice of gRFC A2 selects clients.
struct DnsConfigClient {
  std::string host_name;
  unsigned lot = 0;  // From 0 to 99, by chance: the client is among the first `lot` + 1 per cent.
};

// Returns the service config, as JSON, that the TXT records of _grpc_config.<name> have for a client (gRFC A2). Empty:
// they have none for it. No I/O. Fails with `invalid_argument`.
Result<std::string> choose_dns_config(const std::vector<DnsRecord>& records, const DnsConfigClient& client);

}  // namespace hawser::cluster
