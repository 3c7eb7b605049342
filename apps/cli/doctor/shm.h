#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace hawser::cli::doctor {

struct ShmFacts {
  bool proc = true;               // /proc can be read.
  std::string memory_error;       // Reason why shared memory cannot be created; empty if it can.
  std::string peer_meet_error;    // Reason why the memory cannot be passed to another process; empty if it can.
  std::string peer_read_error;    // Reason why another process's memory cannot be read directly; empty if it can.
  std::int64_t ptrace_scope = 0;  // kernel.yama.ptrace_scope
};

// Creates shared memory, and passes and reads memory with a child process.
ShmFacts read_shm(const SystemFiles& files);
Section examine_shm(const ShmFacts& facts);

}  // namespace hawser::cli::doctor
