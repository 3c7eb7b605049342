#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hawser/error.h"
#include "hawser/ucx_options.h"
#include "transport/data_path.h"

namespace hawser::transport {

// Messages over UCX's active messages. Where libucp is not installed, attach() says so.
std::shared_ptr<DataPath> make_ucx_path(const UcxOptions& options);

// What UCX can do on this machine, for an operator.
struct UcxReport {
  struct Transport {
    std::string name;    // "tcp", "rc_verbs", "posix", ...
    std::string device;  // "eth0", "mlx5_0:1", "memory", ...
  };
  std::string library;                // The version, and where it was loaded from.
  std::vector<Transport> transports;  // Those that `options` leave.
  std::vector<std::string> settings;  // "TLS=tcp": what `options` and the environment set.
  std::string worker;                 // What a worker says of itself; several lines.
  std::size_t address_bytes = 0;      // Of a worker's address, of at most path_parameters_bytes_max less 64.
};

// The error says why UCX can't be had here, and the remedy.
Result<UcxReport> ucx_report(const UcxOptions& options = {});

}  // namespace hawser::transport
