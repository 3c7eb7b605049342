#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "hawser/naming.h"
#include "hawser/time.h"

// Names of services in Consul. Component hawser::consul. docs/clusters.md describes them.
//
//   options.naming.push_back(hawser::consul_naming());
//   auto storage = hawser::ClusterClient::create("consul:///storage?tag=primary", options);
//
// The name is consul://<agent>/<service>?<parameters>, where the agent may be missing. The endpoints are the instances
// of the service without a critical check, which an agent of Consul reports to this process as they change
// (/v1/health/service). The token of the process needs `service:read` and `node:read`.
namespace hawser {

namespace transport {
class ClientSecurity;
}

struct ConsulOptions {
  // The agent for names without one: "http://host:port", "https://host:port", "host:port" or "unix:///path". Empty: the
  // environment variable CONSUL_HTTP_ADDR, and "http://127.0.0.1:8500" without it. "host:port" is https if `security`
  // is set or CONSUL_HTTP_SSL is "true". An agent in a name is "host:port"; it is https if `security` is set.
  std::string agent = {};
  // The file of the token by which this process is known to Consul. It is read for each request, because tokens are
  // replaced. Empty: the file that CONSUL_HTTP_TOKEN_FILE names, or the token in CONSUL_HTTP_TOKEN, or none.
  std::string token_file = {};
  // Protects the connections of https URLs: a TlsClient (hawser/tls.h). Null: the issuer of the agent's certificate is
  // one of those of the system.
  std::shared_ptr<transport::ClientSecurity> security = {};
  // The zone of an instance is the value of this key in its own metadata or, without one, in those of its node.
  std::string zone_key = "zone";
  Duration connect_timeout = std::chrono::seconds(2);
  // Limit of a request, in addition to the time that the agent may wait. From 1 ms to 1 h.
  Duration request_timeout = std::chrono::seconds(10);
  // The agent answers after this time even if nothing has changed. From 1 s to 10 min, as in Consul.
  Duration wait_time = std::chrono::minutes(1);
  // Pause after a failure. It doubles up to retry_max, and differs by chance between clients. From 1 ms to 1 h.
  Duration retry_interval = std::chrono::milliseconds(500);
  Duration retry_max = std::chrono::seconds(30);
  // Limit of one answer.
  std::size_t message_bytes_max = std::size_t{16} << 20;
};

// The scheme "consul".
NamingScheme consul_naming(ConsulOptions options = {});

}  // namespace hawser
