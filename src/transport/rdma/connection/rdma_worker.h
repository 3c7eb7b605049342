#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/alive.h"
#include "exec/offload_pool.h"
#include "hawser/loop.h"
#include "hawser/rdma_options.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "transport/common/liveness.h"
#include "transport/rdma/connection/completion_entries.h"
#include "transport/rdma/connection/completion_targets.h"
#include "transport/rdma/connection/half_open.h"
#include "transport/rdma/connection/local_port.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/connection/shared_receives.h"
#include "transport/rdma/device/side_work.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/memory/remote_access.h"
#include "transport/rdma/protocol/channel.h"
#include "transport/rdma/protocol/receive_ring.h"

namespace hawser::transport::rdma {

class DrainingQueuePair;
class RdmaWorker;

// State that all loops share: the device, its memory, and the workers that receive its events. Thread-safe.
class RdmaDevice {
 public:
  // Opens the device that the options name, or the first usable one.
  static Result<std::shared_ptr<RdmaDevice>> open(const RdmaOptions& options, Verbs& verbs,
                                                  std::shared_ptr<UserMemory> user);
  // Opens the device `name`.
  static Result<std::shared_ptr<RdmaDevice>> open_one(const RdmaOptions& options, Verbs& verbs, const std::string& name,
                                                      std::shared_ptr<UserMemory> user);

  RdmaDevice(const RdmaOptions& wanted, std::shared_ptr<Device> opened, const PortStatus& status,
             const GidEntry& address, std::shared_ptr<UserMemory> user);

  const RdmaOptions options;
  const std::shared_ptr<Device> device;
  // One thread for operations during which the kernel may block. Null if the device never blocks.
  const std::shared_ptr<exec::OffloadPool> helper;
  const std::shared_ptr<MemoryPool> pool;
  const PortStatus port;  // State when the device was opened.
  const GidEntry gid;
  // Identifies the device's memory for peers. Every opening of a device gets another number, which is never 0.
  const std::uint64_t domain;
  // Access that peers of its connections have.
  RdmaRemoteAccess access;

  // Reserves one queue pair of queue_pairs_max. False if none is left.
  bool acquire_queue_pair() noexcept;
  std::size_t queue_pairs() const noexcept { return queue_pairs_.load(std::memory_order_relaxed); }
  void release_queue_pair() noexcept { queue_pairs_.fetch_sub(1, std::memory_order_relaxed); }

  // Starts registering all memory of the application with the device, before later work of its helper.
  void register_soon(const std::shared_ptr<UserMemory>& user);

  void add(RdmaWorker& worker);
  void remove(RdmaWorker& worker) noexcept;
  // Passes the event to the loop of every worker.
  void notify(const DeviceEvent& event);
  // True when the device is gone and must be opened again.
  bool dead() const noexcept { return dead_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> queue_pairs_{0};
  std::atomic<bool> dead_{false};
  std::mutex mutex_;
  std::vector<RdmaWorker*> workers_;
};

// The completion queue of one loop, and the connections whose queue pairs report there.
class RdmaWorker final : public TransportWorker,
                         public std::enable_shared_from_this<RdmaWorker>,
                         exec::Source,
                         exec::Watcher,
                         exec::TickEnd,
                         ReceiveRingOwner {
 public:
  static Result<std::shared_ptr<RdmaWorker>> make(Loop& loop, std::shared_ptr<RdmaDevice> device);
  RdmaWorker(Loop& loop, std::shared_ptr<RdmaDevice> device, std::unique_ptr<CompletionQueue> queue,
             std::size_t entries);
  ~RdmaWorker();

  bool usable() const noexcept override { return !device_->dead() && !broken_; }
  std::vector<std::byte> offer() override;
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override;
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override;
  std::size_t probe_bytes() const noexcept override { return transport_probe_bytes_max; }
  bool use_shorter_packets(Bytes server) override;

  // ---- Functions for connections
  Loop& loop() noexcept { return loop_; }
  RdmaDevice& device() noexcept { return *device_; }
  LocalPort& port() noexcept { return port_; }
  CompletionEntries& entries() noexcept { return entries_; }
  // Runs operations during which the kernel may block.
  SideWork& side_work() noexcept { return side_work_; }
  // Destroys a queue pair whose connection does not exist any more.
  void discard(std::unique_ptr<QueuePair> pair);
  // Segments of one send request of the queue pairs.
  std::size_t send_segments() const noexcept {
    return std::clamp(device_->device->limits().segments, std::size_t{1}, OneSided::segments_most);
  }
  // Makes a queue pair with this worker's queues. Runs on any thread that side_work() uses.
  Result<std::unique_ptr<QueuePair>> make_pair(unsigned send_requests, unsigned receive_requests);
  void add(std::uint32_t queue_pair, CompletionTarget& target) { targets_.set(queue_pair, target); }
  // Processes all completions in the queue.
  void poll_all();
  // Accepts one element: the queue pair of a connection that has ended. May be called within any of its callbacks.
  using Draining = std::list<std::unique_ptr<DrainingQueuePair>>;
  void drain(Draining one) noexcept;
  // Null without a shared receive queue.
  std::shared_ptr<ReceiveRing> shared_ring() const noexcept { return shared_ == nullptr ? nullptr : shared_->ring(); }
  // Reserves and posts the receives of one more connection. They are released when its queue pair has been drained.
  Result<void> grow_shared(std::size_t receives);
  // Posts free chunks at the end of the tick, and notifies the connections that had used them up.
  void repost_soon() { loop_.at_tick_end(*this); }

  // May be called by any thread.
  void post_event(const DeviceEvent& event);
  std::size_t connections() const noexcept { return targets_.size(); }

 private:
  Result<void> check_port();
  bool poll() override;
  bool arm() override;
  void on_ready(exec::Readiness) override;
  void on_tick_end() override;
  void chunks_returned() noexcept override;
  std::size_t poll_once(std::span<Completion> space);
  void hand_out(const Completion& completion);
  void reclaim_receive(const Completion& completion);
  void reap(bool drain = true);
  void reclaim();
  Result<RdmaParameters> check_server(Bytes server);
  Result<RdmaOffer> check_client(Bytes offer);
  Draining::iterator destroy_soon(Draining::iterator at);
  void destroy(Draining& from, Draining::iterator at);
  void repost_shared();
  void on_device_event(const DeviceEvent& event);
  void log_event(const DeviceEvent& event) const noexcept;
  void break_down(const DeviceEvent& event);
  void on_timer();
  void end_grace();

  // Device events arrive on a separate descriptor.
  struct EventWatcher final : exec::Watcher {
    explicit EventWatcher(RdmaWorker& owner) : worker(owner) {}
    void on_ready(exec::Readiness) override;
    RdmaWorker& worker;
  };

  Loop& loop_;
  const std::shared_ptr<RdmaDevice> device_;
  LocalPort port_;
  bool broken_ = false;  // One of its queues failed: it can make no more connections.
  std::unique_ptr<CompletionQueue> queue_;
  CompletionEntries entries_;
  EventWatcher events_;
  MemberTimer<&RdmaWorker::on_timer> timer_{*this};
  MemberTimer<&RdmaWorker::end_grace> grace_{*this};  // Runs while the port is down.
  const std::shared_ptr<HalfOpen> half_open_;
  CompletionTargets targets_;
  std::vector<Completion> polled_;
  Draining draining_;
  // The helper thread destroys their queue pairs.
  Draining destroying_;
  std::list<std::unique_ptr<QueuePair>> discarded_;

  std::unique_ptr<SharedReceives> shared_;  // Null without a shared receive queue.
  SideWork side_work_;
  const Alive<RdmaWorker> alive_{*this};  // Calls that other threads have posted use it.
};

}  // namespace hawser::transport::rdma
