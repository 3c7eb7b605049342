#pragma once

#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::cluster {

// A service in Kubernetes.
struct KubernetesName {
  std::string service;
  std::string name_space;  // Empty: that of the pod in which this process runs.
  std::string port;        // The name of a port of the service, or a number. Empty: its only port.
};

// Parses "/<service>.<namespace>:<port>". Fails with `invalid_argument`.
Result<KubernetesName> parse_kubernetes_name(std::string_view target);

// True if `text` is the name of a service or of a namespace (RFC 1123, a label).
bool is_kubernetes_label(std::string_view text) noexcept;

}  // namespace hawser::cluster
