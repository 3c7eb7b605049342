#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "hawser/error.h"

namespace hawser {

// Keeps the machine's processors out of sleep states that take longer to leave than a given time: as long as this
// lives, and as long as the process does. For those who wait for events; who polls keeps its processor awake anyway.
class CpuLatency {
 public:
  static constexpr const char* device = "/dev/cpu_dma_latency";

  // `most`: 0 keeps them awake; at most 2,000 s. The error says what is missing.
  static Result<CpuLatency> hold(std::chrono::microseconds most, const std::string& path = device);
  CpuLatency(CpuLatency&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  CpuLatency& operator=(CpuLatency other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~CpuLatency();

 private:
  explicit CpuLatency(int fd) noexcept : fd_(fd) {}
  int fd_;  // The kernel holds the value as long as it is open.
};

}  // namespace hawser
