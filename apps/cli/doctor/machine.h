#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace hawser::cli::doctor {

// A limit of this process, as getrlimit() returns it.
struct ProcessLimit {
  static constexpr std::uint64_t unlimited = UINT64_MAX;
  std::uint64_t soft = unlimited;
  std::uint64_t hard = unlimited;
};

// An idle state of a processor.
struct IdleState {
  std::string name;
  std::int64_t wake_us = 0;
};

// Facts about the machine that all transports depend on. A fact that could not be read is empty.
struct MachineFacts {
  std::string kernel;  // "6.1.0-44-amd64"
  std::size_t processors = 0;
  std::size_t numa_nodes = 0;
  std::string clock_source;
  std::string frequency_governor;  // Setting of the first processor, as are the driver and the idle states.
  std::string frequency_driver;
  std::vector<IdleState> idle_states;         // The enabled ones.
  std::optional<std::int64_t> wake_bound_us;  // Limit set by a process through /dev/cpu_dma_latency.
  std::string transparent_huge_pages;         // "always", "madvise", "never".
  std::int64_t huge_pages = 0;                // Number of reserved pages of 2 MiB.
  std::int64_t huge_pages_free = 0;
  ProcessLimit locked_bytes;
  bool may_lock_any = false;  // The process has CAP_IPC_LOCK: limits do not apply.
  ProcessLimit open_files;
};

MachineFacts read_machine(const SystemFiles& files);
Section examine_machine(const MachineFacts& facts);

// Returns texts such as "64 KiB", "2.5 MiB" and "unlimited".
std::string bytes_text(std::uint64_t bytes);

}  // namespace hawser::cli::doctor
