#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "exec/offload_pool.h"
#include "hawser/loop.h"
#include "hawser/rdma_options.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/transport.h"
#include "transport/common/liveness.h"
#include "transport/rdma/connection/half_open.h"
#include "transport/rdma/connection/parameters.h"
#include "transport/rdma/device/path_mtus.h"
#include "transport/rdma/device/side_work.h"
#include "transport/rdma/device/verbs.h"
#include "transport/rdma/memory/memory_pool.h"
#include "transport/rdma/memory/remote_access.h"
#include "transport/rdma/protocol/channel.h"
#include "transport/rdma/protocol/receive_ring.h"

namespace hawser::transport::rdma {

class DrainingQueuePair;
class RdmaWorker;

// What all loops have in common: the device, its memory, and who is to be told of its events. Thread-safe.
class RdmaDevice {
 public:
  // Opens the device that the options name, or the first that will do.
  static Result<std::shared_ptr<RdmaDevice>> open(const RdmaOptions& options, Verbs& verbs,
                                                  std::shared_ptr<UserMemory> user);
  // That one.
  static Result<std::shared_ptr<RdmaDevice>> open_one(const RdmaOptions& options, Verbs& verbs, const std::string& name,
                                                      std::shared_ptr<UserMemory> user);

  RdmaDevice(const RdmaOptions& wanted, std::shared_ptr<Device> opened, const PortStatus& status,
             const GidEntry& address, std::shared_ptr<UserMemory> user);

  const RdmaOptions options;
  const std::shared_ptr<Device> device;
  // One thread for what the kernel may block; null if this device does not.
  const std::shared_ptr<exec::OffloadPool> helper;
  const std::shared_ptr<MemoryPool> pool;
  const PortStatus port;  // As it was when the device was opened.
  const GidEntry gid;
  // What peers know its memory by: another whenever a device is opened, and never 0.
  const std::uint64_t domain;
  // What the peers of its connections may do.
  RemoteAccess access;

  // One queue pair of queue_pairs_max; false when there is none left.
  bool acquire_queue_pair() noexcept;
  std::size_t queue_pairs() const noexcept { return queue_pairs_.load(std::memory_order_relaxed); }
  void release_queue_pair() noexcept { queue_pairs_.fetch_sub(1, std::memory_order_relaxed); }

  // Has the device know all of the application's memory, before what its helper does from now on.
  void register_soon(const std::shared_ptr<UserMemory>& user);

  void add(RdmaWorker& worker);
  void remove(RdmaWorker& worker) noexcept;
  // Has every end's loop handle the event.
  void notify(const DeviceEvent& event);
  // It is gone: to be opened anew.
  bool dead() const noexcept { return dead_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::size_t> queue_pairs_{0};
  std::atomic<bool> dead_{false};
  std::mutex mutex_;
  std::vector<RdmaWorker*> workers_;
};

// Takes a queue pair's completions. May be removed from the end within.
class CompletionTarget {
 public:
  virtual void on_completion(const Completion& completion) = 0;
  virtual void on_event(const DeviceEvent& event) = 0;
  // A receive that it had used was posted again, to the shared queue.
  virtual void on_posted(const ReceiveChunk& chunk) = 0;

 protected:
  ~CompletionTarget() = default;
};

// One loop's completion queue, and the connections whose queue pairs report there.
class RdmaWorker final : public TransportWorker,
                         public std::enable_shared_from_this<RdmaWorker>,
                         exec::Source,
                         exec::Watcher,
                         exec::TickEnd,
                         ReceiveRingOwner,
                         Timer {
 public:
  static Result<std::shared_ptr<RdmaWorker>> make(Loop& loop, std::shared_ptr<RdmaDevice> device);
  RdmaWorker(Loop& loop, std::shared_ptr<RdmaDevice> device, std::unique_ptr<CompletionQueue> queue,
             std::size_t entries);
  ~RdmaWorker();

  bool usable() const noexcept override { return !device_->dead() && !broken_; }
  std::vector<std::byte> offer() override;
  Result<std::unique_ptr<PendingConnection>> select(Bytes offer, const MessageLimits& limits) override;
  Result<std::unique_ptr<PendingConnection>> accept(Bytes server, const MessageLimits& limits) override;
  Result<std::unique_ptr<PendingConnection>> begin_select(Bytes offer, const MessageLimits& limits) override;
  Result<std::unique_ptr<PendingConnection>> begin_accept(Bytes server, const MessageLimits& limits) override;
  std::size_t probe_bytes() const noexcept override { return transport_probe_bytes_max; }
  bool use_shorter_packets(Bytes server) override;

  // Of connections that are made from now on, if the device has it.
  void prefer(const Gid& address) noexcept { preferred_ = address; }

  // ---- For connections
  Loop& loop() noexcept { return loop_; }
  RdmaDevice& device() noexcept { return *device_; }
  // That of this end's connections being made.
  const GidEntry& address() const noexcept { return address_; }
  // The longest packets that connections from here use, unless there is less toward their peer.
  unsigned mtu_bytes() const noexcept;
  // As it was when the last handshake came by.
  const PortStatus& port() const noexcept { return port_; }
  // What one connection posts at most, within the completion queue that is left. Undone by release_entries().
  Result<void> acquire_entries(std::size_t entries);
  void release_entries(std::size_t entries) noexcept { entries_used_ -= entries; }
  // What the kernel may block.
  SideWork& side_work() noexcept { return side_work_; }
  // Made for a connection that is not there any more.
  void discard(std::unique_ptr<QueuePair> pair);
  // A queue pair with this end's queues. Any thread that side_work() has.
  Result<std::unique_ptr<QueuePair>> make_pair(unsigned send_requests, unsigned receive_requests);
  void add(std::uint32_t queue_pair, CompletionTarget& target) { targets_[queue_pair] = &target; }
  void remove(std::uint32_t queue_pair) noexcept;
  // Hands out all completions that are there.
  void poll_all();
  // One element: the queue pair of a connection that has ended, from within any of its callbacks.
  using Draining = std::list<std::unique_ptr<DrainingQueuePair>>;
  void drain(Draining one) noexcept;
  // Null without a shared receive queue.
  const std::shared_ptr<ReceiveRing>& shared_ring() const noexcept { return shared_ring_; }
  // Room for one more connection's credits, which are posted at once. Given back when its queue pair has been drained.
  Result<void> grow_shared(std::size_t receives);
  // Posts what is free at the end of the tick, and tells whose credits it was.
  void repost_soon() { loop_.at_tick_end(*this); }

  // Any thread.
  void post_event(const DeviceEvent& event);
  std::size_t connections() const noexcept { return targets_.size(); }

 private:
  void refresh();
  Result<void> check_port() const;
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
  Result<Parameters> check_server(Bytes server);
  Result<Offer> check_client(Bytes offer);
  Draining::iterator destroy_soon(Draining::iterator at);
  void destroy(Draining& from, Draining::iterator at);
  Result<void> make_shared_queue();
  void repost_shared();
  bool refill_is_due() const noexcept;
  void on_device_event(const DeviceEvent& event);
  void break_down(const DeviceEvent& event);
  static void on_timer(Timer& timer) noexcept;

  // Device events come by another descriptor.
  struct EventWatcher final : exec::Watcher {
    explicit EventWatcher(RdmaWorker& owner) : worker(owner) {}
    void on_ready(exec::Readiness) override;
    RdmaWorker& worker;
  };

  // Runs while the port is down.
  struct Grace final : Timer {
    explicit Grace(RdmaWorker& owner) noexcept : Timer(&Grace::over), worker(owner) {}
    static void over(Timer& timer) noexcept;
    RdmaWorker& worker;
  };

  Loop& loop_;
  const std::shared_ptr<RdmaDevice> device_;
  PortStatus port_;
  GidEntry address_;
  Gid preferred_;
  bool broken_ = false;  // One of its queues: it can make no more connections.
  std::unique_ptr<CompletionQueue> queue_;
  const std::size_t entries_;
  std::size_t entries_used_ = 0;
  EventWatcher events_;
  Grace grace_{*this};
  const std::shared_ptr<HalfOpen> half_open_;
  PathMtus mtus_;
  std::unordered_map<std::uint32_t, CompletionTarget*> targets_;
  std::uint32_t last_number_ = 0;
  CompletionTarget* last_ = nullptr;
  std::vector<Completion> polled_;
  Draining draining_;
  // Their queue pairs are being destroyed.
  Draining destroying_;
  std::list<std::unique_ptr<QueuePair>> discarded_;
  // Null once this is gone, for what other threads have posted.
  const std::shared_ptr<RdmaWorker*> self_ = std::make_shared<RdmaWorker*>(this);

  std::unique_ptr<SharedReceiveQueue> shared_queue_;
  std::shared_ptr<ReceiveRing> shared_ring_;
  std::size_t shared_promised_ = 0;  // To connections.
  std::size_t shared_max_ = 0;
  bool raises_last_receive_ = false;  // The device has, of a queue pair of this end.
  SideWork side_work_;
};

}  // namespace hawser::transport::rdma
