#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "hawser/naming.h"
#include "hawser/time.h"

// Names of services at a control plane that speaks xDS (version 3, aggregated streams). Component hawser::xds.
// docs/clusters.md describes what is supported.
//
//   options.naming.push_back(hawser::xds_naming());
//   auto storage = hawser::ClusterClient::create("xds:///storage.example:443", options);
namespace hawser {

namespace transport {
class ClientSecurity;
}

struct XdsOptions {
  // The bootstrap of gRPC as JSON. Empty: the file that the environment variable GRPC_XDS_BOOTSTRAP names, or else the
  // text of GRPC_XDS_BOOTSTRAP_CONFIG.
  std::string bootstrap = {};
  // Protects the connections to the control plane: a TlsClient (hawser/tls.h). Null: plain text, which the bootstrap
  // must permit by the channel credentials "insecure".
  std::shared_ptr<transport::ClientSecurity> security = {};
  // The control plane decides about balancing, outliers, the limit of calls and dropped calls, in place of
  // ClusterOptions, and about timeouts and retries if ClusterOptions::service_config is empty. False: it gives the list
  // alone.
  bool policies = true;
  Duration connect_timeout = std::chrono::seconds(5);
  // A resource that the control plane has not sent this long after the request does not exist. From 1 ms to
  // 1 h.
  Duration absent_timeout = std::chrono::seconds(15);
  // Pause after a stream that had no answer. It doubles up to retry_max, and differs by chance between clients. A
  // stream that had answers is replaced at once, but not earlier than this time after its begin. Refusals of answers
  // are this time apart, too, and the next answer is read behind them. Both from 1 ms to 1 h.
  Duration retry_interval = std::chrono::seconds(1);
  Duration retry_max = std::chrono::seconds(60);
  // Limit of one answer. An answer with more bytes ends the stream. At most 4,294,967,295.
  std::size_t message_bytes_max = std::size_t{16} << 20;
};

// The scheme "xds".
NamingScheme xds_naming(XdsOptions options = {});

}  // namespace hawser
