#pragma once

#include <cstddef>
#include <cstdint>

#include "hawser/error.h"
#include "hawser/rdma_options.h"
#include "hawser/time.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::cli::doctor {

// Two queue pairs of one port, connected to each other: what really works, and how fast.
struct SelfTestResult {
  std::size_t inline_bytes = 0;   // Granted of what the options wish.
  std::size_t send_requests = 0;  // Granted.
  double one_way_us = 0;          // Median of half round trips of 64 bytes, polling.
  double send_megabytes_per_second = 0;
  std::size_t send_bytes = 0;  // Of one send of those.
};

struct SelfTestPlan {
  unsigned port = 1;
  transport::rdma::GidEntry address;
  bool global = true;  // Addressed by GID.
  std::uint16_t lid = 0;
  unsigned mtu_bytes = 1024;
  Duration duration = std::chrono::milliseconds(300);      // Of each of both measurements.
  Duration completion_timeout = std::chrono::seconds(10);  // Without any completion it has failed.
};

Result<SelfTestResult> run_self_test(transport::rdma::Device& device, const RdmaOptions& options,
                                     const SelfTestPlan& plan);

}  // namespace hawser::cli::doctor
