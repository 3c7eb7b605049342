#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "hawser/transport/transport.h"
#include "hawser/ucx_options.h"

namespace hawser::transport {

// Messages over UCX's active messages. Where libucp is not installed, attach() says so.
std::shared_ptr<Transport> make_ucx_transport(const UcxOptions& options);
// `kept`: workers that the UCX transports of a runtime have abandoned; null at first.
std::shared_ptr<Transport> make_ucx_transport(const UcxOptions& options, std::shared_ptr<void>& kept);

// What UCX can do on this machine, for an operator.
struct UcxReport {
  struct Transport {
    std::string name;    // "tcp", "rc_verbs", "posix", ...
    std::string device;  // "eth0", "mlx5_0:1", "memory", ...
    std::string uses;    // Of a chosen one, in UCX's words: "am am_bw#0 wireup".
  };
  std::string library;                // The version, and where it was loaded from.
  std::vector<Transport> transports;  // Those that `options` leave.
  std::vector<std::string> settings;  // "TLS=tcp": what `options` and the environment set.
  std::vector<Transport> chosen;      // What an endpoint to another worker of this machine uses.
  std::size_t address_bytes = 0;      // Of a worker's address, of at most address_bytes_max.
  static constexpr std::size_t address_bytes_max = transport_parameters_bytes_max - 32;
};

// The error says why UCX can't be had here, and the remedy.
Result<UcxReport> ucx_report(const UcxOptions& options = {});

}  // namespace hawser::transport
