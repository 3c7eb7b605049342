#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/machine.h"
#include "cli/doctor/system_files.h"

namespace hawser::cli::doctor {

// A feature of the kernel that Hawser replaces where it is missing.
struct KernelFeature {
  std::string_view name;     // The system call, such as "epoll_pwait2".
  std::string_view without;  // Behaviour of Hawser without it.
  int error = 0;             // errno of an attempt; 0: the feature can be used.
};

// Features and limits of this process, by the kernel, a filter of system calls, the control group and the namespaces. A
// limit that does not exist or could not be read is empty.
struct ProcessFacts {
  std::vector<KernelFeature> features;
  bool proc = false;                         // /proc shows this process.
  bool call_filter = false;                  // A seccomp filter is active.
  std::size_t processors = 0;                // Processors of the machine.
  std::size_t processors_allowed = 0;        // Processors of the affinity mask.
  bool groups_of_version_1 = false;          // Their limits are not read.
  std::optional<double> processor_quota;     // cpu.max: processors whose time the control group may use.
  std::optional<std::int64_t> memory_bytes;  // memory.max
  std::optional<std::int64_t> tasks;         // pids.max: threads and processes of the control group.
  std::optional<std::int64_t> users;         // Users that the user namespace maps. Empty: all.
  ProcessLimit tasks_of_user;                // RLIMIT_NPROC
  ProcessLimit address_bytes;                // RLIMIT_AS
};

ProcessFacts read_process(const SystemFiles& files, const MachineFacts& machine);
Section examine_process(const ProcessFacts& facts);

}  // namespace hawser::cli::doctor
