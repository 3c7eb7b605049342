#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "transport/sim/rdma/sim_device.h"

namespace hawser::transport {

inline constexpr std::size_t sim_segments_max = 8;

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
  struct Work {
    std::uint64_t id = 0;
    std::array<rdma::Segment, sim_segments_max> segments{};
    unsigned segment_count = 0;
    std::vector<std::byte> inlined;  // A copy of inline data.
    std::uint32_t bytes = 0;
    rdma::Opcode opcode = rdma::Opcode::send;
    bool is_inline = false;
    bool signalled = false;
    bool solicited = false;
    bool fenced = false;
    bool done = false;
    std::uint32_t immediate = 0;
    std::uint64_t remote_address = 0;
    std::uint32_t remote_key = 0;
    double posted_ns = 0;
  };

  Result<void> accept(const rdma::SendRequest& request);
  void transmit(std::uint64_t sequence, double ns);
  void arrive(const SimFabric::Event& event);
  Status deliver(const Work& work, SimQueuePair& peer, double ns);
  bool takes_receive(const Work& work) const noexcept;
  void refused(std::uint64_t sequence);
  void resume();
  void read_arrived(const SimFabric::Event& event);
  void finish(std::uint64_t sequence, double ns);
  void complete_finished(double ns);
  void break_down(Status status, double ns);
  void flush_receives(double ns);
  void copy_from(const Work& work, std::byte* to);
  Work& at(std::uint64_t sequence) { return work_[sequence - first_sequence_]; }
  bool has(std::uint64_t sequence) const noexcept {
    return sequence >= first_sequence_ && sequence - first_sequence_ < work_.size();
  }

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
  bool connected_ = false;
  bool broken_ = false;
  bool refused_ = false;  // It is ready to receive only.

  std::deque<Work> work_;  // Work that has not completed; the first has the number first_sequence_.
  std::uint64_t first_sequence_ = 0;
  std::size_t unsignalled_done_ = 0;  // Completed, but their slots become free only with the next signalled request.
  std::uint64_t expected_ = 0;        // As a receiver: number of the peer's next message.
  std::uint32_t epoch_ = 0;
  bool waiting_ = false;  // Waits for a receiver that was not ready.
  std::uint64_t refused_sequence_ = 0;
  unsigned refusals_ = 0;             // Refusals of that message.
  std::vector<double> read_free_ns_;  // For each possible outstanding read, the time at which it has returned.
  double last_arrival_ns_ = 0;
};

}  // namespace hawser::transport
