#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "hawser/naming.h"
#include "hawser/time.h"

// Names of services in Kubernetes. Component hawser::kubernetes. docs/clusters.md describes them.
//
//   options.naming.push_back(hawser::kubernetes_naming());
//   auto storage = hawser::ClusterClient::create("kubernetes:///storage.shop:grpc", options);
//
// The name is kubernetes:///<service>.<namespace>:<port>. The endpoints are those of the EndpointSlices of the service,
// which the API server lists and watches for this process. Its account needs the verbs `list` and `watch` for the
// resource `endpointslices` of the group `discovery.k8s.io` in that namespace.
namespace hawser {

namespace transport {
class ClientSecurity;
}

struct KubernetesOptions {
  // URL of the API server, such as "http://127.0.0.1:8001" for `kubectl proxy`. Empty: this process runs in a pod, and
  // the environment variables KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT have the address.
  std::string server = {};
  // The file of the token by which this process is known to the API server. It is read for each request, because
  // tokens are replaced. Empty: `token` in account_folder if `server` is empty, and no token otherwise.
  std::string token_file = {};
  // Protects the connections of https URLs: a TlsClient (hawser/tls.h). Null: the issuer of the server's certificate is
  // in `ca.crt` in account_folder if `server` is empty, and one of those of the system otherwise.
  std::shared_ptr<transport::ClientSecurity> security = {};
  // Kubernetes keeps the files `token`, `ca.crt` and `namespace` of a pod's account there.
  std::string account_folder = "/var/run/secrets/kubernetes.io/serviceaccount";
  // The zone of this process. With it, endpoints that the hints of Kubernetes give to other zones have the priority 1,
  // so that they get calls only if none of the own zone can serve.
  std::string zone = {};
  Duration connect_timeout = std::chrono::seconds(2);
  // Limit of one request for the whole list. From 1 ms to 1 h.
  Duration request_timeout = std::chrono::seconds(10);
  // The server ends each watch after 0.8 to 1.2 times this time, and the next one goes on from there. A server that is
  // silent is left after at most 1.2 times this time and request_timeout. From 1 s to 1 h.
  Duration watch_time = std::chrono::minutes(2);
  // Pause after a failure. It doubles up to retry_max, and differs by chance between clients. From 1 ms to 1 h.
  Duration retry_interval = std::chrono::milliseconds(500);
  Duration retry_max = std::chrono::seconds(30);
  // Limit of a list, and of one change of it, which has a whole slice.
  std::size_t message_bytes_max = std::size_t{16} << 20;
};

// The scheme "kubernetes".
NamingScheme kubernetes_naming(KubernetesOptions options = {});

}  // namespace hawser
