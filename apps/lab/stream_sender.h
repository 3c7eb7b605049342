#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lab/executor.h"
#include "lab/memory.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::lab {

// Most completions that one poll returns.
inline constexpr std::size_t poll_burst_max = 32;

// Returns the pattern of message `message` of a connection whose sender uses `slots` slots in turn.
constexpr std::uint64_t pattern_of(unsigned connection, std::uint64_t message, unsigned slots) noexcept {
  return (std::uint64_t{connection} << 32) + message % slots;
}

struct SenderPlan {
  unsigned connection = 0;
  std::size_t size_bytes = 16;
  std::uint64_t count = 1000;
  unsigned window = 1;      // Most messages that have not completed yet.
  unsigned batch = 1;       // Messages for one doorbell; at most the window.
  bool signal_each = true;  // Every message is signalled; else the last one of each batch.
  bool use_inline = false;  // Send inline if the queue pair supports the size.
};

// Sends messages as fast as the window and the credits allow. The id of a request is the number of its message, so that
// waiting for a message is a comparison.
class StreamSender final : public Role {
 public:
  // `payload` has a slot for each message of the window, filled beforehand. `granted` counts the messages for which the
  // receiver has made room; the device writes it; it is null without credits. All arguments must outlive the object.
  StreamSender(const SenderPlan& plan, transport::rdma::QueuePair& queue_pair,
               transport::rdma::CompletionQueue& completions, const LabMemory& payload, std::uint64_t* granted);

  Result<bool> step(Processor& processor) override;
  bool done() const override { return completed_ == plan_.count; }

  double start_ns() const noexcept { return start_ns_; }
  double end_ns() const noexcept { return end_ns_; }

 private:
  bool may_send(std::uint64_t messages) const noexcept;

  const SenderPlan plan_;
  transport::rdma::QueuePair& queue_pair_;
  transport::rdma::CompletionQueue& completions_;
  std::uint64_t* const granted_;
  std::vector<transport::rdma::Segment> segments_;      // The segment of each slot,
  std::vector<transport::rdma::SendRequest> requests_;  // and the request that sends it.
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  double start_ns_ = 0;
  double end_ns_ = 0;
};

// Describes a failed completion to the operator of an experiment.
Error completion_error(const transport::rdma::Completion& completion);

// Returns the distance between the slots of messages: whole cache lines.
constexpr std::size_t stride_of(std::size_t size_bytes) noexcept {
  return (size_bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}

}  // namespace hawser::lab
