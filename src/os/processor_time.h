#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace hawser {

// Processor time that the process has used, of all its threads.
std::chrono::nanoseconds processor_time_used() noexcept;

// The processors whose time the process may use: those on which its first thread may run, or the quota of its control
// group, if that is less. Above 0. Reads files.
double processors_of_process();

// The least quota (cpu.max) of a control group of version 2 and of those above it, as a number of processors. Empty:
// none. `own` is a file as /proc/self/cgroup, and `root` the folder where control groups are mounted.
std::optional<double> processor_quota(const std::string& own = "/proc/self/cgroup",
                                      const std::string& root = "/sys/fs/cgroup");

}  // namespace hawser
