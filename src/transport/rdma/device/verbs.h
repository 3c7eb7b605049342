#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/transport/poller.h"

namespace hawser {
class Loop;
}

// The verbs that we use of an RDMA device, without a vendor's header: over libibverbs (ibverbs.cpp), or simulated. One
// virtual call a batch.
namespace hawser::transport::rdma {

struct Gid {
  std::array<std::byte, 16> bytes{};
  // ::ffff:a.b.c.d
  bool ipv4_mapped() const noexcept;
  bool zero() const noexcept { return *this == Gid{}; }
  friend bool operator==(const Gid&, const Gid&) = default;
};
// As an address: "::ffff:10.0.0.1" and the like.
std::string to_string(const Gid& gid);

enum class GidType : std::uint8_t { infiniband, roce_v1, roce_v2 };
std::string_view to_string(GidType type) noexcept;

struct GidEntry {
  unsigned index = 0;
  Gid gid;
  GidType type = GidType::infiniband;
};

struct PortStatus {
  unsigned number = 0;
  bool active = false;
  bool ethernet = false;   // RoCE; else InfiniBand.
  std::uint16_t lid = 0;   // InfiniBand's address within the subnet.
  unsigned mtu_bytes = 0;  // Active.
  unsigned mtu_bytes_max = 0;
  double gigabits_per_second = 0;
};

struct DeviceLimits {
  std::size_t queue_pairs = 0;
  std::size_t queue_pair_requests = 0;  // Of one queue of a queue pair.
  std::size_t segments = 0;             // Of one work request.
  std::size_t completion_queue_entries = 0;
  std::size_t shared_receive_requests = 0;  // Of one shared receive queue; 0 without them.
  std::size_t memory_regions = 0;
  std::size_t memory_region_bytes = 0;
  std::size_t reads_outstanding = 0;  // That one queue pair answers, and that it may ask.
};

// A figure of the device's own, such as "rnr_nak_retry_err" or "rcvd_rnr_err".
struct Counter {
  std::string name;
  std::uint64_t value = 0;
};

enum class DeviceEventKind : std::uint8_t {
  device_fatal,  // The device is gone or broken: all that was made on it is dead.
  port_down,
  port_up,
  queue_pair_fatal,
  completion_queue_overrun,
  shared_receive_queue_low,  // The limit that SharedReceiveQueue::set_limit() armed was passed.
  // A failed queue pair uses up no more shared receives: the completions of those that it did are in the completion
  // queue. Not every device raises it.
  last_receive_reached,
  shared_receive_queue_broken,
  addresses_changed,  // GIDs, the LID, or what else a subnet manager may have changed.
};
std::string_view to_string(DeviceEventKind kind) noexcept;

struct DeviceEvent {
  DeviceEventKind kind = DeviceEventKind::device_fatal;
  unsigned port = 0;             // Of port events.
  std::uint32_t queue_pair = 0;  // Of queue_pair_fatal and last_receive_reached.
  // Of what happened to a queue: the CompletionQueue or SharedReceiveQueue, to be compared only. It may be gone.
  const void* queue = nullptr;
};

// ---- Work

// A stretch of registered memory.
struct Segment {
  const std::byte* data = nullptr;  // Written to by reads and receives.
  std::uint32_t bytes = 0;
  std::uint32_t local_key = 0;  // Not used of inline data.
};

enum class Opcode : std::uint8_t { send, send_with_immediate, write, write_with_immediate, read };

struct SendRequest {
  std::uint64_t id = 0;  // Comes back in the completion.
  std::span<const Segment> segments;
  Opcode opcode = Opcode::send;
  bool inlined =
      false;  // The data is copied while posting: its memory is free at once. Within QueuePair::inline_bytes().
  bool signalled = false;       // Asks for a completion. Without one the next completion of this queue speaks for it.
  bool solicited = false;       // The peer's armed completion queue wakes, also if it waits for solicited ones only.
  bool fenced = false;          // Waits for reads before it.
  std::uint32_t immediate = 0;  // As a number on this host; both ends see the same one.
  std::uint64_t remote_address = 0;  // Reads and writes.
  std::uint32_t remote_key = 0;
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  Segment segment;
};

enum class Status : std::uint8_t {
  success,
  flushed,           // The queue pair broke before; it says why in another completion.
  retry_exceeded,    // The peer does not answer.
  rnr_exceeded,      // The peer had no receive posted.
  remote_access,     // The peer did not allow the access.
  remote_invalid,    // The peer could not make sense of the request, such as a send longer than its receive.
  remote_operation,  // The peer failed.
  local_error,       // Lengths, keys or states on this side.
  fatal,             // The device.
};
std::string_view to_string(Status status) noexcept;

struct Completion {
  std::uint64_t id = 0;
  std::uint32_t queue_pair = 0;
  Status status = Status::success;
  // What follows is meaningful with Status::success only.
  bool received = false;  // A receive; else a send, read or write of ours.
  // Of a receive, what the peer did to use it up: `write_with_immediate` has put nothing into its memory. Of ours, what
  // it was.
  Opcode opcode = Opcode::send;
  bool has_immediate = false;
  std::uint32_t bytes = 0;  // Received; or, of `write_with_immediate`, written, which the peer chooses.
  std::uint32_t immediate = 0;
};

// ---- Objects. Each is destroyed before the device that made it. Not thread-safe unless it says so.

class MemoryRegion {
 public:
  // Afterwards the device does not touch the memory any more, and the keys mean nothing.
  virtual ~MemoryRegion() = default;
  virtual std::uint32_t local_key() const noexcept = 0;
  virtual std::uint32_t remote_key() const noexcept = 0;
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // Takes up to out.size() completions, in order for each queue pair; gives their number.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  // Tells `watcher` (readable) when a completion comes after arm(); from within the loop. Until unwatch().
  virtual void watch(Loop& loop, exec::Watcher& watcher) = 0;
  virtual void unwatch(Loop& loop, exec::Watcher& watcher) noexcept = 0;
  // Asks to be told, once, of the next completion, or of the next solicited or failed one. What came before is not
  // told: poll once more afterwards.
  virtual Result<void> arm(bool solicited_only) = 0;
};

class SharedReceiveQueue {
 public:
  virtual ~SharedReceiveQueue() = default;
  virtual Result<void> post_receive(std::span<const ReceiveRequest> requests) = 0;
  // Asks for DeviceEventKind::shared_receive_queue_low, once, when fewer than `receives` are posted. 0 disarms.
  virtual Result<void> set_limit(unsigned receives) = 0;
};

// What a queue pair is made with. Granted figures may be higher.
struct QueuePairOptions {
  CompletionQueue* completions = nullptr;         // Of sends and receives.
  SharedReceiveQueue* shared_receives = nullptr;  // Null: it has a receive queue of its own.
  unsigned send_requests = 0;
  unsigned receive_requests = 0;
  unsigned send_segments = 1;
  unsigned inline_bytes = 0;  // Wished for: if the device refuses it, less is granted.
  unsigned pkey_index = 0;
};

// What the peer may do with a region, or by a queue pair: both must allow it.
struct Access {
  bool remote_read = false;
  bool remote_write = false;
  // Of a region: the device's writes may overtake each other, but no completion. Devices may ignore it.
  bool relaxed_ordering = false;
  friend bool operator==(const Access&, const Access&) = default;
};

// How a queue pair reaches its peer, and how it tries.
struct QueuePairRoute {
  unsigned port = 1;
  unsigned gid_index = 0;  // Ours.
  bool global = true;      // Addressed by GID; always so with RoCE.
  Gid peer_gid;
  std::uint16_t peer_lid = 0;
  std::uint32_t peer_queue_pair = 0;  // 24 bits.
  std::uint32_t rq_psn = 0;           // First packet sequence numbers, 24 bits: the peer's, and ours.
  std::uint32_t sq_psn = 0;
  unsigned mtu_bytes = 1024;
  unsigned traffic_class = 0;
  unsigned service_level = 0;
  unsigned hop_limit = 64;
  unsigned ack_timeout = 14;
  unsigned retries = 7;
  unsigned rnr_retries = 7;
  unsigned min_rnr_timer = 12;
  unsigned max_rd_atomic = 1;       // That we have outstanding.
  unsigned max_dest_rd_atomic = 1;  // That the peer may have outstanding here.
  Access access;                    // Until QueuePair::allow().
};

// A reliable connected queue pair. Receives may be posted from the start; sends after connect().
class QueuePair {
 public:
  // Waits for the device to let go: afterwards no memory is touched and no completion is added, though the completion
  // queue may still hold some, or not: a device may take those that were not polled out of it, and shared receives with
  // them.
  virtual ~QueuePair() = default;
  virtual std::uint32_t number() const noexcept = 0;
  virtual std::size_t inline_bytes() const noexcept = 0;   // Granted.
  virtual std::size_t send_requests() const noexcept = 0;  // Granted.

  // Ready to receive and to send.
  virtual Result<void> connect(const QueuePairRoute& route) = 0;
  // What the peer may do from now on, once connected. Any thread. A queue pair that broke ignores it.
  virtual void allow(Access access) noexcept = 0;
  // Each batch behind one doorbell. An error means that the queue pair is of no use any more.
  virtual Result<void> post_send(std::span<const SendRequest> requests) = 0;
  virtual Result<void> post_receive(std::span<const ReceiveRequest> requests) = 0;
  // Breaks it: what is outstanding completes with Status::flushed, or has completed.
  virtual void fail() noexcept = 0;
};

// An open device with one protection domain. Thread-safe, but for what watch_events() says.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual const DeviceLimits& limits() const noexcept = 0;
  // Making, connecting and destroying objects may block the caller, for up to a second while the kernel looks for a
  // peer's address. False: all is done at once, and by one thread only.
  virtual bool blocks() const noexcept { return true; }

  virtual unsigned ports() const noexcept = 0;
  virtual Result<PortStatus> port(unsigned number) = 0;
  virtual Result<std::vector<GidEntry>> gids(unsigned port) = 0;  // Without empty entries.
  virtual std::vector<Counter> counters(unsigned port) = 0;       // Those of the port and of the device.

  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(MutableBytes memory, Access access) = 0;
  virtual Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::size_t entries) = 0;
  virtual Result<std::unique_ptr<SharedReceiveQueue>> create_shared_receive_queue(std::size_t requests) = 0;
  // Ready to have receives posted; `port` is the one that it will connect through.
  virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options, unsigned port) = 0;

  // Tells `watcher` (readable), from within the loop, that next_event() may have something. Several loops may watch;
  // each event is taken by one.
  virtual void watch_events(Loop& loop, exec::Watcher& watcher) = 0;
  virtual void unwatch_events(Loop& loop, exec::Watcher& watcher) noexcept = 0;
  virtual std::optional<DeviceEvent> next_event() = 0;
};

// The devices of a machine. Thread-safe.
class Verbs {
 public:
  virtual ~Verbs() = default;
  // Their names. The error says why there can be none, and the remedy.
  virtual Result<std::vector<std::string>> devices() = 0;
  virtual Result<std::shared_ptr<Device>> open(const std::string& name) = 0;
  // From now on memory that is registered stays this process's when it forks. The error says why that can't be had, and
  // the remedy.
  virtual Result<void> make_fork_safe() { return {}; }
};

// Those of this machine, over libibverbs; without that library, one that says so.
std::shared_ptr<Verbs> system_verbs();

}  // namespace hawser::transport::rdma
