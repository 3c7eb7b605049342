#pragma once

#include <cstdint>
#include <vector>

#include "lab/executor.h"
#include "lab/memory.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::lab {

// One side of a ping-pong. The side that begins measures the round trips. Each message is verified.
class PingPong final : public Role {
 public:
  struct Plan {
    std::size_t size_bytes = 16;
    std::uint64_t count = 1000;  // Round trips.
    bool begins = false;
    bool use_inline = false;
  };
  // `memory` has two slots: the message to send, which the constructor fills, and the received message. All arguments
  // must outlive the object.
  PingPong(const Plan& plan, transport::rdma::QueuePair& queue_pair, transport::rdma::CompletionQueue& completions,
           LabMemory& memory);

  Result<void> post_first();
  Result<bool> step(Processor& processor) override;
  bool done() const override { return received_ == plan_.count && sends_completed_ == sent_ && sent_ == plan_.count; }

  // Half of each round trip in ns, as the side that begins has measured it.
  const std::vector<double>& half_trips_ns() const noexcept { return half_trips_ns_; }

 private:
  Result<void> send(Processor& processor);
  Result<void> on_message(Processor& processor, const transport::rdma::Completion& completion);

  const Plan plan_;
  transport::rdma::QueuePair& queue_pair_;
  transport::rdma::CompletionQueue& completions_;
  LabMemory& memory_;
  transport::rdma::Segment segment_;
  transport::rdma::ReceiveRequest receive_;
  std::uint64_t sent_ = 0;
  std::uint64_t sends_completed_ = 0;
  std::uint64_t received_ = 0;
  double sent_ns_ = 0;
  std::vector<double> half_trips_ns_;
};

}  // namespace hawser::lab
