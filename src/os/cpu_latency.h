#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "base/descriptor.h"
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

 private:
  explicit CpuLatency(Descriptor file) noexcept : file_(std::move(file)) {}
  Descriptor file_;  // The kernel applies the value as long as this descriptor is open.
};

}  // namespace hawser
