#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "hawser/error.h"
#include "lab/executor.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::lab {

// Devices and addresses that the experiments use.
struct TestbedOptions {
  std::string sender_device;    // Empty: the first device.
  std::string receiver_device;  // Empty: the next one on a simulated fabric, else the sender's.
  unsigned port = 1;
  int gid_index = -1;  // -1: RoCE v2 over IPv4 if there is one, else the first.
};

// Parameters of the connection between two queue pairs.
struct LinkOptions {
  unsigned rnr_retries = 7;     // 7: without limit.
  unsigned min_rnr_timer = 12;  // Code of the verbs; 12 means 0.64 ms.
  unsigned reads = 16;
};

// The two ends of every experiment, within one process, and its executor.
class Testbed {
 public:
  // `executor` must outlive the testbed and everything that is created with it.
  static Result<Testbed> open(transport::rdma::Verbs& verbs, Executor& executor, const TestbedOptions& options);

  transport::rdma::Device& sender() const noexcept { return *sender_.device; }
  transport::rdma::Device& receiver() const noexcept { return *receiver_.device; }
  unsigned port() const noexcept { return port_; }
  Executor& executor() const noexcept { return *executor_; }
  bool simulated() const noexcept { return executor_->simulated(); }
  double gigabits_per_second() const noexcept { return sender_.status.gigabits_per_second; }
  std::string describe() const;

  // Connects a queue pair of the sender with one of the receiver.
  Result<void> connect(transport::rdma::QueuePair& sender, transport::rdma::QueuePair& receiver,
                       const LinkOptions& options) const;
  // Returns the number of receiver-not-ready events so far, as the devices count them.
  std::uint64_t receiver_not_ready() const;

 private:
  struct End {
    std::shared_ptr<transport::rdma::Device> device;
    transport::rdma::PortStatus status;
    transport::rdma::GidEntry gid;
  };
  Testbed() = default;
  static Result<End> open_end(transport::rdma::Verbs& verbs, const std::string& name, const TestbedOptions& options);
  transport::rdma::QueuePairRoute route(const End& own, const End& peer, std::uint32_t queue_pair,
                                        const LinkOptions& options) const;

  Executor* executor_ = nullptr;
  End sender_;
  End receiver_;
  unsigned port_ = 1;
};

}  // namespace hawser::lab
