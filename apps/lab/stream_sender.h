#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lab/executor.h"
#include "lab/memory.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::lab {

// Completions that are taken at a time.
inline constexpr std::size_t poll_burst_max = 32;

// The pattern of message `message` of a connection whose sender has `slots` places for messages, which it reuses in
// turn.
constexpr std::uint64_t pattern_of(unsigned connection, std::uint64_t message, unsigned slots) noexcept {
  return (std::uint64_t{connection} << 32) + message % slots;
}

struct SenderPlan {
  unsigned connection = 0;
  std::size_t size_bytes = 16;
  std::uint64_t count = 1000;
  unsigned window = 1;      // Messages that have not completed yet.
  unsigned batch = 1;       // Behind one doorbell; at most the window.
  bool signal_each = true;  // Else the last of each batch.
  bool use_inline = false;  // Where the queue pair grants it.
};

// Sends messages as fast as a window, and credits, let it. Ids count messages, so that waiting for one is a comparison.
class StreamSender final : public Role {
 public:
  // `payload` has a place for each message of the window, filled beforehand. `granted` counts the messages that the
  // receiver has made room for so far, and is written to by the device; null if nobody counts. All outlive this.
  StreamSender(const SenderPlan& plan, transport::rdma::QueuePair& queue_pair,
               transport::rdma::CompletionQueue& completions, const RegisteredMemory& payload, std::uint64_t* granted);

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
  std::vector<transport::rdma::Segment> segments_;      // One for each place,
  std::vector<transport::rdma::SendRequest> requests_;  // and what sends it.
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
  double start_ns_ = 0;
  double end_ns_ = 0;
};

// What a failed completion means to who runs an experiment.
Error completion_error(const transport::rdma::Completion& completion);

// Bytes between places of messages: whole cache lines.
constexpr std::size_t stride_of(std::size_t size_bytes) noexcept {
  return (size_bytes + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
}

}  // namespace hawser::lab
