#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "hawser/error.h"

namespace hawser {

// Keeps the machine's processors out of sleep states that take longer to leave than a given time, as long as this
// object and the process live. It helps programs that wait for events; a program that polls keeps its processor awake
// anyway.
class CpuLatency {
 public:
  static constexpr const char* device = "/dev/cpu_dma_latency";

  // `most` is the longest wake-up latency, at most 2,000 s; 0 keeps the processors awake. The error names what is
  // missing.
  static Result<CpuLatency> hold(std::chrono::microseconds most, const std::string& path = device);
  CpuLatency(CpuLatency&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  CpuLatency& operator=(CpuLatency other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~CpuLatency();

 private:
  explicit CpuLatency(int fd) noexcept : fd_(fd) {}
  int fd_;  // The kernel applies the value as long as this descriptor is open.
};

}  // namespace hawser
