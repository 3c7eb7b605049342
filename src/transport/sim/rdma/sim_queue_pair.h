#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/sim/rdma/sim_device.h"
#include "transport/sim/rdma/sim_refusals.h"
#include "transport/sim/rdma/sim_send_queue.h"

namespace hawser::transport {

// One end of a reliable connection. Messages stay in order. A message for which the receiver has posted no receive is
// refused. It is sent again, with all that followed it, after the time that the receiver requests.
class SimQueuePair final : public rdma::QueuePair {
 public:
  SimQueuePair(SimDevice& device, const rdma::QueuePairOptions& options);
  SimQueuePair(const SimQueuePair&) = delete;
  SimQueuePair& operator=(const SimQueuePair&) = delete;
  ~SimQueuePair() override;

  std::uint32_t number() const noexcept override { return number_; }
  std::size_t inline_bytes() const noexcept override { return inline_bytes_; }
  std::size_t send_requests() const noexcept override { return options_.send_requests; }
  Result<void> connect(const rdma::QueuePairRoute& route) override;
  Result<void> post_send(std::span<const rdma::SendRequest> requests) override;
  std::size_t accepted() const noexcept override { return accepted_; }
  Result<void> post_receive(std::span<const rdma::ReceiveRequest> requests) override;
  void allow(rdma::Access access) noexcept override { route_.access = access; }
  void fail() noexcept override;

  // Handles an event of a message that this queue pair has sent.
  void on_event(const SimFabric::Event& event);

 private:
  using Status = rdma::WorkStatus;
  // As the states of the verbs: RESET, RTR, RTS and ERR.
  enum class State : std::uint8_t { reset, ready_to_receive, ready_to_send, error };

  Result<void> accept(const rdma::SendRequest& request);
  void transmit(std::uint64_t sequence, double ns);
  void arrive(const SimFabric::Event& event);
  Status deliver(const SimWork& work, SimQueuePair& peer, double ns);
  bool takes_receive(const SimWork& work) const noexcept;
  void refused(std::uint64_t sequence);
  void resume();
  void read_arrived(const SimFabric::Event& event);
  void finish(std::uint64_t sequence, double ns);
  void break_down(Status status, double ns);
  void flush_receives(double ns);
  void copy_from(const SimWork& work, std::byte* to);
  bool receives() const noexcept { return state_ == State::ready_to_receive || state_ == State::ready_to_send; }

  SimDevice& device_;
  const rdma::QueuePairOptions options_;
  SimCompletionQueue& completions_;
  SimSharedReceiveQueue* const shared_;
  SimReceives own_receives_;
  SimProcessor* receive_poster_ = nullptr;
  const std::size_t inline_bytes_;
  const unsigned unit_;
  std::uint32_t number_ = 0;
  rdma::QueuePairRoute route_;
  std::size_t accepted_ = 0;  // Requests of the last batch.
  State state_ = State::reset;
  SimSendQueue sends_;
  std::uint64_t expected_ = 0;        // As a receiver: number of the peer's next message.
  SimRefusals refusals_;              // By the peer.
  std::vector<double> read_free_ns_;  // For each possible outstanding read, the time at which it has returned.
  double last_arrival_ns_ = 0;
};

}  // namespace hawser::transport
