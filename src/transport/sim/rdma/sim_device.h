#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/device/verbs.h"
#include "transport/sim/rdma/sim_fabric.h"

namespace hawser::transport {

class SimDevice;

// Posted receives of one queue pair, or shared ones.
struct SimReceives {
  std::deque<rdma::ReceiveRequest> posted;
  std::size_t capacity = 0;
};

class SimCompletionQueue final : public rdma::CompletionQueue {
 public:
  SimCompletionQueue(SimDevice& device, std::size_t capacity);
  SimCompletionQueue(const SimCompletionQueue&) = delete;
  SimCompletionQueue& operator=(const SimCompletionQueue&) = delete;
  ~SimCompletionQueue() override;

  std::size_t poll(std::span<rdma::Completion> out) override;
  void watch(Loop& loop, exec::Watcher& watcher) override;
  void unwatch(Loop& loop, exec::Watcher& watcher) noexcept override;
  Result<void> arm(bool solicited_only) override;

  // The host sees the completion at `ns`, and not before completions that were added earlier.
  void add(const rdma::Completion& completion, double ns, bool solicited);
  // Returns the time at which the host has seen all completions that were added.
  double last_ns() const noexcept;
  // Removes the completions of this queue pair.
  void drop(std::uint32_t queue_pair);
  // Returns the time at which an armed queue notifies its watcher; never_ns if there is no reason to.
  double notice_ns() const noexcept;
  // Notifies the watcher if that is due.
  bool deliver(double now_ns);

 private:
  struct Entry {
    double ns = 0;
    bool solicited = false;
    rdma::Completion completion;
  };
  SimDevice& device_;
  const std::size_t capacity_;
  std::deque<Entry> entries_;
  exec::Watcher* watcher_ = nullptr;
  bool armed_ = false;
  bool armed_solicited_only_ = false;
  double notice_ns_ = never_ns;
  bool overrun_ = false;  // No further completions arrive.
  std::uint32_t last_queue_pair_ = 0;
};

class SimSharedReceiveQueue final : public rdma::SharedReceiveQueue {
 public:
  SimSharedReceiveQueue(SimDevice& device, std::size_t capacity) : device_(device) { receives_.capacity = capacity; }

  Result<void> post_receive(std::span<const rdma::ReceiveRequest> requests) override;
  Result<void> set_limit(unsigned receives) override;

  SimReceives& receives() noexcept { return receives_; }
  // A receive was used up: raises the event of the limit if necessary.
  void taken();
  unsigned queue_pairs = 0;  // Queue pairs that share this queue.

 private:
  SimDevice& device_;
  SimReceives receives_;
  unsigned limit_ = 0;
  const SimProcessor* last_poster_ = nullptr;
};

class SimDevice final : public rdma::Device {
 public:
  SimDevice(std::shared_ptr<SimFabric> fabric, std::string name, unsigned index);
  ~SimDevice() override;

  const std::string& name() const noexcept override { return name_; }
  const rdma::DeviceLimits& limits() const noexcept override { return limits_; }
  bool blocks() const noexcept override { return false; }
  unsigned ports() const noexcept override { return 1; }
  Result<rdma::PortStatus> port(unsigned number) override;
  Result<std::vector<rdma::GidEntry>> gids(unsigned port) override;
  // "rcvd_rnr_err" counts requests to this device to try again later. "send_rnr_err" counts such requests by this
  // device.
  std::vector<rdma::RdmaCounter> counters(unsigned port) override;
  Result<std::unique_ptr<rdma::MemoryRegion>> register_memory(MutableBytes memory, rdma::Access access) override;
  // The descriptor may be any that can be mapped, such as that of memfd_create().
  Result<std::unique_ptr<rdma::MemoryRegion>> register_dmabuf(int descriptor, std::uint64_t offset,
                                                              MutableBytes addresses, rdma::Access access) override;
  Result<std::unique_ptr<rdma::CompletionQueue>> create_completion_queue(std::size_t entries) override;
  Result<std::unique_ptr<rdma::SharedReceiveQueue>> create_shared_receive_queue(std::size_t requests) override;
  Result<std::unique_ptr<rdma::QueuePair>> create_queue_pair(const rdma::QueuePairOptions& options,
                                                             unsigned port) override;
  void watch_events(Loop& loop, exec::Watcher& watcher) override;
  void unwatch_events(Loop& loop, exec::Watcher& watcher) noexcept override;
  std::optional<rdma::DeviceEvent> next_event() override;

  // ---- For tests
  void set_port(const rdma::PortStatus& status) { port_ = status; }
  void add_address(const rdma::GidEntry& entry) { addresses_.push_back(entry); }
  void refuse_memory(bool refuses) noexcept { refuses_memory_ = refuses; }
  // As a device whose driver does not know dma-buf descriptors.
  void refuse_dmabuf(bool refuses) noexcept { refuses_dmabuf_ = refuses; }
  std::size_t regions() const noexcept { return regions_.size(); }
  // Longer packets from this device are lost, whatever the ports' MTU is.
  void lose_packets_beyond(std::size_t bytes) noexcept { packet_bytes_max_ = bytes; }
  const std::vector<SimCompletionQueue*>& completion_queues() const noexcept { return completion_queues_; }

  // ---- For the device's parts
  struct Region {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    rdma::Access access;
    std::uint64_t address = 0;  // Names the first byte.
  };
  SimFabric& fabric() noexcept { return *fabric_; }
  const SimParameters& parameters() const noexcept { return fabric_->parameters(); }
  // Charges the acting processor, and returns it.
  SimProcessor& charge(double ns) noexcept { return fabric_->charge(own_processor_, ns); }
  // Without an executor, this device's own processor is busy until this time, and sees no completion before.
  double busy_until_ns() const noexcept { return fabric_->processor() == nullptr ? own_processor_.now_ns : 0; }
  // Returns the memory for a key and an address; null unless all of it is within the region.
  std::byte* resolve(std::uint32_t key, std::uint64_t address, std::size_t bytes) const noexcept;
  const Region* region(std::uint32_t key) const noexcept;
  std::size_t packet_bytes_max() const noexcept { return packet_bytes_max_; }
  void forget_region(std::uint32_t key) noexcept { regions_.erase(key); }
  void add(SimCompletionQueue& queue) { completion_queues_.push_back(&queue); }
  void remove(SimCompletionQueue& queue) noexcept { std::erase(completion_queues_, &queue); }
  void raise(rdma::DeviceEvent event);

  // Returns the time at which a message that is handed over at `ns` has been sent by the processing unit `unit`.
  double transmit(unsigned unit, double ns, std::size_t bytes, bool from_memory);
  // Returns the time at which a message that arrives at `ns` has been received.
  double take_in(double ns, std::size_t bytes, bool shared);
  // Returns the time of a copy from the device's memory to the host's, or back.
  double memory_ns(std::size_t bytes) const noexcept;
  unsigned next_unit() noexcept { return next_unit_++ % static_cast<unsigned>(unit_free_ns_.size()); }

  // This number of connect() calls fail, and leave the queue pair ready to receive but not to send.
  unsigned connects_refused = 0;
  // post_send() accepts this number of further requests, and refuses the next one and all behind it.
  std::size_t sends_accepted = SIZE_MAX;
  std::uint64_t doorbells = 0;         // Calls of post_send(),
  std::uint64_t send_requests = 0;     // their requests,
  std::uint64_t send_completions = 0;  // and those that have completed with a completion.
  std::uint64_t rnr_received = 0;      // "Receiver not ready" replies from the peer,
  std::uint64_t rnr_sent = 0;          // and replies to the peer.

 private:
  const std::shared_ptr<SimFabric> fabric_;
  const std::string name_;
  const unsigned index_;
  rdma::DeviceLimits limits_;
  SimProcessor own_processor_;
  rdma::PortStatus port_;
  std::vector<rdma::GidEntry> addresses_;
  bool refuses_memory_ = false;
  bool refuses_dmabuf_ = false;
  std::size_t packet_bytes_max_ = SIZE_MAX;
  std::vector<SimCompletionQueue*> completion_queues_;
  std::map<std::uint32_t, Region> regions_;
  std::deque<rdma::DeviceEvent> events_;
  std::vector<exec::Watcher*> event_watchers_;
  std::vector<double> unit_free_ns_;
  unsigned next_unit_ = 0;
  double wire_free_ns_ = 0;
  double receive_free_ns_ = 0;
};

}  // namespace hawser::transport
