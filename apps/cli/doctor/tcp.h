#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/doctor/finding.h"
#include "cli/doctor/machine.h"
#include "cli/doctor/system_files.h"

namespace hawser::cli::doctor {

struct TcpFacts {
  std::string io_uring_refusal;        // Reason why io_uring is not available; empty if it is.
  std::int64_t io_uring_disabled = 0;  // kernel.io_uring_disabled: 1: disabled except for one group, 2: for all.
  ProcessLimit open_files;
  std::int64_t accept_queue_max = 0;  // net.core.somaxconn; 0: unknown
};

TcpFacts read_tcp(const SystemFiles& files, const MachineFacts& machine);
Section examine_tcp(const TcpFacts& facts);

}  // namespace hawser::cli::doctor
