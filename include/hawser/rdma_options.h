#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hawser/time.h"

namespace hawser {

// The kind of port address (GID) that a connection uses.
enum class RdmaAddress : std::uint8_t {
  automatic,     // The first that exists of: RoCE v2 over IPv4, RoCE v2 over IPv6, InfiniBand, RoCE v1.
  roce_v2_ipv4,  // Routable. Most networks are configured for it.
  roce_v2_ipv6,
  roce_v1,  // Within one Ethernet segment only.
  infiniband,
};

// Options of the RDMA transport. Every value is checked when the transport is enabled; the error names the option that
// is out of range. `hawser doctor` shows what the machine supports and what these options cost per connection.
struct RdmaOptions {
  // ---- Device
  // Such as "mlx5_0". Empty: for each connection, the device that has the local address of its byte stream, otherwise
  // the first active device.
  std::string device = {};
  unsigned port = 0;                             // 1 to 255. 0: the device's first active port.
  RdmaAddress address = RdmaAddress::automatic;  // Selects among the port's GIDs.
  int gid_index = -1;                            // 0 to 255: index in the port's GID table. -1: selected by `address`.

  // ---- The queue pair
  unsigned path_mtu_bytes = 0;  // 256, 512, 1024, 2048 or 4096. 0: the smaller active MTU of the two ports.
  unsigned traffic_class = 0;   // 0 to 255, in the packets' IP header. The upper six bits are the DSCP.
  unsigned service_level = 0;   // 0 to 15. Also the Ethernet priority, if the NIC derives it from this.
  unsigned hop_limit = 64;      // 1 to 255.
  unsigned pkey_index = 0;      // 0 to 65,535: index in the port's P_Key table (partitions). RoCE has only 0.
  // 1 to 31: a packet without an answer is sent again after 4.096 us * 2^n or, as the specification allows, up to 4
  // times that. 16 is 0.27 to 1.1 s.
  unsigned ack_timeout = 16;
  // 0 to 7: repetitions of a packet without an answer before the connection ends. It ends after (retries + 1) ack
  // timeouts, by default 2.1 to 8.6 s.
  unsigned retries = 7;
  unsigned rnr_retries = 7;     // 0 to 7; 7 is unlimited. Credits keep the receiver ready, so that 0 works too.
  unsigned min_rnr_timer = 12;  // 0 to 31: code of the verbs for the time that a sender waits after RNR; 12 is 0.64 ms.
  // 1 to 255 RDMA reads at the same time per direction, within the device's limit.
  unsigned reads_outstanding_max = 16;

  // ---- Memory per connection: (recv_queue_depth + send_window) * chunk_bytes, 2.5 MiB by default
  std::size_t chunk_bytes = 256 * 1024;  // 4 KiB to 16 MiB, a multiple of 4 KiB. Largest size of one send.
  unsigned recv_queue_depth = 8;   // 4 to 4096 chunks that are posted for receiving. The peer has as many credits.
  unsigned send_window = 2;        // 1 to 64: chunks that are being filled or sent, and packets on the wire.
  unsigned send_queue_depth = 64;  // 16 to 16,384 work requests.
  // 0 to 4096: sends up to this size are copied into the work request, if the device allows it.
  std::size_t inline_bytes = 256;
  // 1 KiB to 1 GiB. The receiver reads larger payloads that lie in registered memory (rendezvous); they are not sent.
  std::size_t eager_bytes_max = 64 * 1024;
  // 0 to 1 GiB. A payload in ordinary memory that does not fit a chunk is copied into registered memory, where the
  // receiver reads it, if it is at most this long. A longer one is sent in parts through the chunks: that takes a copy
  // on either side, but copying and sending overlap. 0: every such payload is sent through the chunks.
  std::size_t copied_bytes_max = std::size_t{4} << 20;
  std::size_t rendezvous_max = 64;       // 1 to 1024 payloads per connection that wait to be read by the peer.
  std::size_t read_bytes_max = 1 << 20;  // 64 KiB to 1 GiB: size of one RDMA read. Longer payloads take several.
  // 0 to 1 GiB per connection. While one payload is being read, the following payloads are read too, up to this size.
  // All connections of a device together use at most an eighth of memory_bytes_max for this.
  std::size_t read_ahead_bytes_max = std::size_t{8} << 20;
  std::size_t one_sided_max = 256;  // 1 to 65,536 operations of RemoteMemory in progress per connection.
  unsigned signal_every = 16;       // 1 to send_queue_depth / 2: every n-th send is signalled.

  // ---- Shared receive queue of all connections of a loop
  bool shared_receive_queue = false;
  std::size_t shared_chunk_bytes = 8 * 1024;    // chunk_bytes of connections that use the shared receive queue.
  unsigned shared_receives_per_connection = 4;  // 4 to 64: credits of each connection.
  // 64 to 1,048,576 receives, within the device's limit. Connections beyond it are refused.
  std::size_t shared_receives_max = 16 * 1024;
  // 0 to 1: the queue is refilled when this part of it, or of one connection's credits, is used up.
  double shared_low_watermark = 0.5;

  // ---- Bounds
  // 8 MiB or more: registered memory of one device. A connection that does not fit is refused and falls back.
  std::size_t memory_bytes_max = std::size_t{4} << 30;
  std::size_t arena_bytes = std::size_t{16} << 20;  // 1 MiB to 1 GiB: registered as one region and divided into chunks.
  bool huge_pages = true;  // Requests transparent huge pages. The transport works without them.
  Duration idle_memory_timeout = std::chrono::seconds(10);  // Arenas that are unused for this time are freed.
  std::size_t queue_pairs_max = 16 * 1024;  // 1 or more: open on a device at the same time, within its limit.
  // 1 to 65,536 unfinished client handshakes per loop that hold a queue pair. At the limit, the oldest one is declined
  // if it is older than one second, otherwise the new one. A client that is declined uses the next transport.
  std::size_t half_open_max = 64;

  // ---- Faults
  // 0 to 60 s: a port that is down for this time ends its connections. Until then the device repeats packets without an
  // answer.
  Duration port_down_grace = std::chrono::seconds(1);
  // Excludes registered memory from copy-on-write in a child of fork(). Without this, on kernels before 5.12, a fork()
  // breaks receives without an error. With it, a child that touches registered memory gets SIGSEGV. Applies to the
  // whole process.
  bool fork_safe = true;
  // Allows the device to write the parts of a message to memory in any order. Completions keep their order, and the
  // library relies on nothing else. Exposed regions are never registered with relaxed ordering, because applications
  // may poll them.
  bool relaxed_ordering = true;

  // ---- The completion queue of each loop
  // 256 to 1,048,576, within the device's limit. Connections that could overflow the queue are refused.
  std::size_t cq_entries = 16 * 1024;
  unsigned poll_burst = 32;  // 1 to 1024 completions per poll.

  friend bool operator==(const RdmaOptions&, const RdmaOptions&) = default;
};

}  // namespace hawser
