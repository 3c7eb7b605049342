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
#include "transport/rdma/device/device_event.h"

namespace hawser {
class Loop;
}

// The verbs that Hawser uses of an RDMA device, without a vendor's header: over libibverbs (ibverbs.cpp), or simulated.
// A batch costs one virtual call.
namespace hawser::transport::rdma {

struct Gid {
  std::array<std::byte, 16> bytes{};
  // True for an address of the form ::ffff:a.b.c.d.
  bool ipv4_mapped() const noexcept;
  bool zero() const noexcept { return *this == Gid{}; }
  friend bool operator==(const Gid&, const Gid&) = default;
};
// Formats the GID as an IPv6 address, such as "::ffff:10.0.0.1".
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
  bool ethernet = false;   // True for RoCE, false for InfiniBand.
  std::uint16_t lid = 0;   // Address within the InfiniBand subnet.
  unsigned mtu_bytes = 0;  // Active MTU.
  unsigned mtu_bytes_max = 0;
  double gigabits_per_second = 0;
};

struct DeviceLimits {
  std::size_t queue_pairs = 0;
  std::size_t queue_pair_requests = 0;  // Limit of one queue of a queue pair.
  std::size_t segments = 0;             // Limit of one work request.
  std::size_t completion_queue_entries = 0;
  std::size_t shared_receive_requests = 0;  // Limit of one shared receive queue; 0 if the device has none.
  std::size_t memory_regions = 0;
  std::size_t memory_region_bytes = 0;
  std::size_t reads_outstanding = 0;  // Limit of the reads that one queue pair answers, and of those that it sends.
};

// A counter that the device maintains, such as "rnr_nak_retry_err" or "rcvd_rnr_err".
struct RdmaCounter {
  std::string name;
  std::uint64_t value = 0;
};

// ---- Work requests

// A range of registered memory.
struct Segment {
  const std::byte* data = nullptr;  // Reads and receives write to it.
  std::uint32_t bytes = 0;
  std::uint32_t local_key = 0;  // Not used for inline data.
};

enum class Opcode : std::uint8_t { send, send_with_immediate, write, write_with_immediate, read };

struct SendRequest {
  std::uint64_t id = 0;  // The completion carries it.
  std::span<const Segment> segments;
  Opcode opcode = Opcode::send;
  // Posting copies the data, so its memory is free at once. The data fits into QueuePair::inline_bytes().
  bool inlined = false;
  // Requests a completion. If it is not set, the next completion of this queue also covers this request.
  bool signalled = false;
  bool solicited = false;  // Wakes the peer's armed completion queue even if it waits only for solicited completions.
  bool fenced = false;     // Waits for earlier reads.
  std::uint32_t immediate = 0;       // In the host's byte order. Both sides see the same number.
  std::uint64_t remote_address = 0;  // For reads and writes.
  std::uint32_t remote_key = 0;
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  Segment segment;
};

enum class WorkStatus : std::uint8_t {
  success,
  flushed,           // The queue pair failed before. Another completion gives the reason.
  retry_exceeded,    // The peer does not answer.
  rnr_exceeded,      // The peer had no receive posted.
  remote_access,     // The peer does not allow the access.
  remote_invalid,    // The request is invalid for the peer, such as a send that is longer than its receive.
  remote_operation,  // The peer's operation failed.
  local_error,       // Invalid length, key or state on this side.
  fatal,             // The device failed.
};
std::string_view to_string(WorkStatus status) noexcept;

struct Completion {
  std::uint64_t id = 0;
  std::uint32_t queue_pair = 0;
  WorkStatus status = WorkStatus::success;
  // The members below are valid only with WorkStatus::success.
  bool received = false;  // True for a receive. False for a send, read or write of this side.
  // For a receive, the peer's operation that used it up: `write_with_immediate` has put nothing into the receive's
  // memory. Otherwise the operation of this side.
  Opcode opcode = Opcode::send;
  bool has_immediate = false;
  // Received bytes. For `write_with_immediate`, the bytes written, a number that the peer chooses.
  std::uint32_t bytes = 0;
  std::uint32_t immediate = 0;
};

// ---- Objects. Each must be destroyed before the device that made it. Objects are not thread-safe unless a comment
// says so.

class MemoryRegion {
 public:
  // Afterwards the device does not access the memory any more, and the keys are invalid.
  virtual ~MemoryRegion() = default;
  virtual std::uint32_t local_key() const noexcept = 0;
  virtual std::uint32_t remote_key() const noexcept = 0;
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // Removes up to out.size() completions and returns their number. The completions of one queue pair are in order.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  // Notifies `watcher` (readable), within the loop, when a completion arrives after arm(). Lasts until unwatch().
  virtual void watch(Loop& loop, exec::Watcher& watcher) = 0;
  virtual void unwatch(Loop& loop, exec::Watcher& watcher) noexcept = 0;
  // Requests one notification for the next completion, or for the next solicited or failed one. Completions that
  // arrived before do not notify, so the caller polls once more afterwards.
  virtual Result<void> arm(bool solicited_only) = 0;
};

class SharedReceiveQueue {
 public:
  virtual ~SharedReceiveQueue() = default;
  virtual Result<void> post_receive(std::span<const ReceiveRequest> requests) = 0;
  // Requests one DeviceEventKind::shared_receive_queue_low when fewer than `receives` are posted. 0 disarms.
  virtual Result<void> set_limit(unsigned receives) = 0;
};

// Parameters of a new queue pair. The granted values may be higher.
struct QueuePairOptions {
  CompletionQueue* completions = nullptr;         // For sends and receives.
  SharedReceiveQueue* shared_receives = nullptr;  // Null: the queue pair has its own receive queue.
  unsigned send_requests = 0;
  unsigned receive_requests = 0;
  unsigned send_segments = 1;
  unsigned inline_bytes = 0;  // A wish: if the device refuses it, less is granted.
  unsigned pkey_index = 0;
};

// Access of the peer to a region, or through a queue pair. Both must allow it.
struct Access {
  bool remote_read = false;
  bool remote_write = false;
  // For a region: the device's writes may overtake each other, but not a completion. Devices may ignore it.
  bool relaxed_ordering = false;
  friend bool operator==(const Access&, const Access&) = default;
};

// The route of a queue pair to its peer, and its timeouts and retries.
struct QueuePairRoute {
  unsigned port = 1;
  unsigned gid_index = 0;  // Index of this side's GID.
  bool global = true;      // The peer is addressed by GID; always so with RoCE.
  Gid peer_gid;
  std::uint16_t peer_lid = 0;
  std::uint32_t peer_queue_pair = 0;  // 24 bits.
  std::uint32_t rq_psn = 0;           // First packet sequence numbers, 24 bits each: the peer's, and this side's.
  std::uint32_t sq_psn = 0;
  unsigned mtu_bytes = 1024;
  unsigned traffic_class = 0;
  unsigned service_level = 0;
  unsigned hop_limit = 64;
  unsigned ack_timeout = 14;
  unsigned retries = 7;
  unsigned rnr_retries = 7;
  unsigned min_rnr_timer = 12;
  unsigned max_rd_atomic = 1;       // Limit of the reads that this side has outstanding.
  unsigned max_dest_rd_atomic = 1;  // Limit of the reads that the peer may have outstanding here.
  Access access;                    // Valid until QueuePair::allow().
};

// A reliable connected queue pair. Receives may be posted from the start, sends after connect().
class QueuePair {
 public:
  // Waits until the device does not use the queue pair any more. Afterwards no memory is accessed and no completion is
  // added. The completion queue may still hold completions of this queue pair. A device may also remove those that were
  // not polled, and their shared receives are then lost.
  virtual ~QueuePair() = default;
  virtual std::uint32_t number() const noexcept = 0;
  virtual std::size_t inline_bytes() const noexcept = 0;   // The granted value.
  virtual std::size_t send_requests() const noexcept = 0;  // The granted value.

  // Makes the queue pair ready to receive and to send.
  virtual Result<void> connect(const QueuePairRoute& route) = 0;
  // Changes the access of the peer, after connect(). Any thread. A queue pair that failed ignores it.
  virtual void allow(Access access) noexcept = 0;
  // Each batch needs one doorbell. After an error the queue pair is not usable any more; accepted() returns what
  // the device has taken nevertheless.
  virtual Result<void> post_send(std::span<const SendRequest> requests) = 0;
  // After an error of post_send(): how many requests of the batch, from its beginning, may be executed.
  virtual std::size_t accepted() const noexcept { return SIZE_MAX; }
  virtual Result<void> post_receive(std::span<const ReceiveRequest> requests) = 0;
  // Sets it to the error state: outstanding requests complete with WorkStatus::flushed, unless they have completed
  // already.
  virtual void fail() noexcept = 0;
};

// An open device with one protection domain. Thread-safe, with the exception that watch_events() describes.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const noexcept = 0;
  virtual const DeviceLimits& limits() const noexcept = 0;
  // True if making, connecting and destroying objects may block the caller, for up to a second while the kernel looks
  // for a peer's address. False: nothing blocks, and only one thread may use the device.
  virtual bool blocks() const noexcept { return true; }

  virtual unsigned ports() const noexcept = 0;
  virtual Result<PortStatus> port(unsigned number) = 0;
  virtual Result<std::vector<GidEntry>> gids(unsigned port) = 0;  // Without empty entries.
  virtual std::vector<RdmaCounter> counters(unsigned port) = 0;   // Counters of the port and of the device.

  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(MutableBytes memory, Access access) = 0;
  // The same for the memory behind a dma-buf descriptor, from `offset` on. Segments and peers name it by `addresses`,
  // which are not memory of this process and have the same offset within a page. The caller may close the descriptor
  // afterwards. `unavailable` if the device or its driver cannot do this.
  virtual Result<std::unique_ptr<MemoryRegion>> register_dmabuf(int descriptor, std::uint64_t offset,
                                                                MutableBytes addresses, Access access) {
    static_cast<void>(descriptor);
    static_cast<void>(offset);
    static_cast<void>(addresses);
    static_cast<void>(access);
    return fail(Error::of_transport(ErrorCode::unavailable, name() + " does not register dma-buf descriptors"));
  }
  virtual Result<std::unique_ptr<CompletionQueue>> create_completion_queue(std::size_t entries) = 0;
  virtual Result<std::unique_ptr<SharedReceiveQueue>> create_shared_receive_queue(std::size_t requests) = 0;
  // Returns a queue pair that is ready to have receives posted. `port` is the port through which it will connect.
  virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options, unsigned port) = 0;

  // Notifies `watcher` (readable), within the loop, that next_event() may return an event. Several loops may watch. One
  // of them receives each event.
  virtual void watch_events(Loop& loop, exec::Watcher& watcher) = 0;
  virtual void unwatch_events(Loop& loop, exec::Watcher& watcher) noexcept = 0;
  virtual std::optional<DeviceEvent> next_event() = 0;
};

// The devices of a machine. Thread-safe.
class Verbs {
 public:
  virtual ~Verbs() = default;
  // Returns the devices' names, the nearest to the calling thread's processors first (DevicePlaces). The error says why
  // there are none, and the remedy.
  virtual Result<std::vector<std::string>> devices() = 0;
  virtual Result<std::shared_ptr<Device>> open(const std::string& name) = 0;
  // From now on, registered memory stays with this process when it forks. The error says why this is not possible, and
  // the remedy.
  virtual Result<void> make_fork_safe() { return {}; }
};

// Returns the devices of this machine, over libibverbs. Without that library, devices() returns an error that says so.
std::shared_ptr<Verbs> system_verbs();

}  // namespace hawser::transport::rdma
