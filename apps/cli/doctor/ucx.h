#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "hawser/ucx_options.h"
#include "transport/ucx/ucx_transport.h"

namespace hawser::cli::doctor {

struct UcxFacts {
  std::string error;                // Reason why UCX is not available with the options; empty if it is.
  transport::UcxReport report;      // Filled if UCX is available.
  std::string between_hosts_error;  // Reason why UCX cannot reach other hosts; empty if it can.
  std::vector<transport::UcxReport::Transport> between_hosts;
  std::vector<std::string> environment;  // Environment variables of UCX, such as "UCX_TLS=tcp".
};

// Loads UCX and creates workers, which send nothing.
UcxFacts read_ucx(const UcxOptions& options);
Section examine_ucx(const UcxFacts& facts);

}  // namespace hawser::cli::doctor
