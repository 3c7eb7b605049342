#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/system_files.h"

namespace hawser::cli::doctor {

// A limit of this process's, as setrlimit() has it.
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

// What all transports stand on. What could not be read is empty.
struct MachineFacts {
  std::string kernel;  // "6.1.0-44-amd64"
  std::size_t processors = 0;
  std::size_t numa_nodes = 0;
  std::string clock_source;
  std::string frequency_governor;  // Of the first processor, like the driver and the idle states.
  std::string frequency_driver;
  std::vector<IdleState> idle_states;         // Those that are enabled.
  std::optional<std::int64_t> wake_bound_us;  // What somebody holds /dev/cpu_dma_latency at.
  std::string transparent_huge_pages;         // "always", "madvise", "never".
  std::int64_t huge_pages = 0;                // Of 2 MiB, set aside.
  std::int64_t huge_pages_free = 0;
  ProcessLimit locked_bytes;
  bool may_lock_any = false;  // CAP_IPC_LOCK: no limit counts.
  ProcessLimit open_files;
};

MachineFacts read_machine(const SystemFiles& files);
Section examine_machine(const MachineFacts& facts);

// "64 KiB", "2.5 MiB", "unlimited".
std::string bytes_text(std::uint64_t bytes);

}  // namespace hawser::cli::doctor
