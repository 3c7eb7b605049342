#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "hawser/transport/transport.h"
#include "hawser/ucx_options.h"

namespace hawser::transport {

// Sends messages as UCX active messages. attach() returns an error if libucp is not installed.
std::shared_ptr<Transport> make_ucx_transport(const UcxOptions& options);
// `kept` holds the abandoned workers of all UCX transports of a runtime. It is null before the first transport; this
// function sets it.
std::shared_ptr<Transport> make_ucx_transport(const UcxOptions& options, std::shared_ptr<void>& kept);

// Describes to an operator which transports UCX offers on this machine.
struct UcxReport {
  struct Transport {
    std::string name;    // "tcp", "rc_verbs", "posix", ...
    std::string device;  // "eth0", "mlx5_0:1", "memory", ...
    std::string uses;    // Uses of a chosen transport, as UCX prints them: "am am_bw#0 wireup".
  };
  std::string library;                // Version and path of the library.
  std::vector<Transport> transports;  // Transports that `options` allow.
  std::vector<std::string> settings;  // Settings from `options` and the environment, such as "TLS=tcp".
  std::vector<Transport> chosen;      // Transports that an endpoint to another worker of this machine uses.
  std::size_t address_bytes = 0;      // Size of a worker's address; the limit is address_bytes_max.
  static constexpr std::size_t address_bytes_max = transport_parameters_bytes_max - 32;
};

// The error names the reason why UCX is not available, and the remedy.
Result<UcxReport> ucx_report(const UcxOptions& options = {});

}  // namespace hawser::transport
