#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace hawser::cli::doctor {

struct ShmFacts {
  std::string memory_error;       // Why no shared memory can be made; empty if it can.
  std::string peer_meet_error;    // Why another process can't be met to pass it; empty if it can.
  std::string peer_read_error;    // Why another process's memory can't be read directly; empty if it can.
  std::int64_t ptrace_scope = 0;  // kernel.yama.ptrace_scope
};

// Tries both.
ShmFacts read_shm(const SystemFiles& files);
Section examine_shm(const ShmFacts& facts);

}  // namespace hawser::cli::doctor
