#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "hawser/ucx_options.h"
#include "transport/ucx/ucx_transport.h"

namespace hawser::cli::doctor {

struct UcxFacts {
  std::string error;                // Why UCX can't be had with the options; empty if it can.
  transport::UcxReport report;      // What there is then.
  std::string between_hosts_error;  // Why it has no way to other hosts; empty if it has.
  std::vector<transport::UcxReport::Transport> between_hosts;
  std::vector<std::string> environment;  // "UCX_TLS=tcp": what applies beside the options.
};

// Loads UCX and makes workers, which send nothing.
UcxFacts read_ucx(const UcxOptions& options);
Section examine_ucx(const UcxFacts& facts);

}  // namespace hawser::cli::doctor
