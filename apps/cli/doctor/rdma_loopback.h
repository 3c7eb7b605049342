#pragma once

#include <cstddef>
#include <cstdint>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "hawser/time.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::cli::doctor {

// Result of a test with two connected queue pairs of one port: what works, and how fast.
struct SelfTestResult {
  std::size_t inline_bytes = 0;   // Size that the device granted of the requested one.
  std::size_t send_requests = 0;  // Number that the device granted.
  double one_way_us = 0;          // Median of half the round trip of 64 bytes, with polling.
  double send_megabytes_per_second = 0;
  std::size_t send_bytes = 0;  // Size of each send in that measurement.
};

struct SelfTestPlan {
  unsigned port = 1;
  transport::rdma::GidEntry address;
  bool global = true;  // The port is addressed by GID, else by LID.
  std::uint16_t lid = 0;
  unsigned mtu_bytes = 1024;
  Duration duration = std::chrono::milliseconds(300);      // Duration of each of the two measurements.
  Duration completion_timeout = std::chrono::seconds(10);  // Without a completion for so long, the test fails.
};

Result<SelfTestResult> run_self_test(transport::rdma::Device& device, const RdmaOptions& options,
                                     const SelfTestPlan& plan);

}  // namespace hawser::cli::doctor
