#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hawser/time.h"

namespace hawser {

// Which of a port's addresses (GIDs) a connection uses.
enum class RdmaAddress : std::uint8_t {
  automatic,     // The first there is of: RoCE v2 over IPv4, RoCE v2 over IPv6, InfiniBand, RoCE v1.
  roce_v2_ipv4,  // Routable; what most networks are set up for.
  roce_v2_ipv6,
  roce_v1,  // Within one Ethernet segment only.
  infiniband,
};

// How RDMA verbs carry calls. Every figure is checked when the transport is attached; an error names the one that is
// out of its bounds. `hawser doctor` tells what the machine can do, and what these options cost per connection.
struct RdmaOptions {
  // ---- Which device
  std::string device = {};                       // Such as "mlx5_0". Empty: for each connection the one that has the
                                                 // address of its stream at this side, else the first that is active.
  unsigned port = 0;                             // 1 to 255. 0: the device's first active one.
  RdmaAddress address = RdmaAddress::automatic;  // Which of the port's GIDs.
  int gid_index = -1;                            // 0 to 255: exactly this entry of the GID table. -1: by `address`.

  // ---- The queue pair
  unsigned path_mtu_bytes = 0;  // 256, 512, 1024, 2048 or 4096. 0: what both active ports have.
  unsigned traffic_class = 0;   // 0 to 255, of the packets' IP header: its upper six bits are the DSCP.
  unsigned service_level = 0;   // 0 to 15; the Ethernet priority where the NIC derives it from this.
  unsigned hop_limit = 64;      // 1 to 255.
  unsigned pkey_index = 0;      // 0 to 65,535: entry of the port's P_Key table (the partition); RoCE has only 0.
  unsigned ack_timeout = 16;    // 1 to 31: 4.096 us * 2^n, and up to 4 times that by the specification, until
                                // a packet is sent again; 16 is 0.27 to 1.1 s.
  unsigned retries = 7;         // 0 to 7, of a packet without an answer, before the connection ends: after
                                // (retries + 1) ack timeouts, by default 2.1 to 8.6 s.
  unsigned rnr_retries = 7;     // 0 to 7; 7 is without end. Credits keep the receiver ready: 0 proves it.
  unsigned min_rnr_timer = 12;  // 0 to 31, the verbs' own code: what we would ask of a sender; 12 is 0.64 ms.
  unsigned reads_outstanding_max = 16;  // 1 to 255 RDMA reads at once in each direction, within the device's limit.

  // ---- Memory per connection: (recv_queue_depth + send_window) * chunk_bytes, 2.5 MiB by default
  std::size_t chunk_bytes = 256 * 1024;  // 4 KiB to 16 MiB, a multiple of 4 KiB. The most that one send carries.
  unsigned recv_queue_depth = 8;         // 4 to 4096 chunks posted to be received into: the peer's credits.
  unsigned send_window = 2;              // 1 to 64 chunks being filled or on the wire, and packets on the wire.
  unsigned send_queue_depth = 64;        // 16 to 16,384 work requests.
  std::size_t inline_bytes = 256;  // 0 to 4096: sends up to here go within the work request, if the device grants it.
  // 1 KiB to 1 GiB. Larger payloads that lie in registered memory are not sent: the receiver reads them (rendezvous).
  std::size_t eager_bytes_max = 64 * 1024;
  // 0 to 1 GiB. Of payloads in ordinary memory what no chunk holds, up to here, is copied into registered memory and
  // read there. What is larger goes in parts through the chunks: a copy at either side, but copies and wire overlap. 0:
  // all of it.
  std::size_t copied_bytes_max = std::size_t{4} << 20;
  std::size_t rendezvous_max = 64;       // 1 to 1024 payloads at once that wait to be read by the peer, a connection.
  std::size_t read_bytes_max = 1 << 20;  // 64 KiB to 1 GiB: one RDMA read; longer payloads take several.
  // 0 to 1 GiB. While a payload is read, those behind it are read too, up to so many bytes a connection. All
  // connections of a device together: at most an eighth of memory_bytes_max.
  std::size_t read_ahead_bytes_max = std::size_t{8} << 20;
  std::size_t one_sided_max = 256;  // 1 to 65,536 reads and writes of RemoteMemory under way, a connection.
  unsigned signal_every = 16;       // 1 to send_queue_depth / 2: of so many sends, one asks for a completion.

  // ---- One queue of receives for all connections of a loop
  bool shared_receive_queue = false;
  std::size_t shared_chunk_bytes = 8 * 1024;    // As chunk_bytes, for connections of a shared queue.
  unsigned shared_receives_per_connection = 4;  // 4 to 64: the credits of each connection.
  std::size_t shared_receives_max =
      16 * 1024;  // 64 to 1,048,576, within the device's limit; refuses connections beyond.
  // 0 to 1: refilled once so much of the queue is used up, or a connection has used up its part.
  double shared_low_watermark = 0.5;

  // ---- Bounds
  std::size_t memory_bytes_max = std::size_t{4}
                                 << 30;             // 8 MiB and more, registered in all on a device. New connections
                                                    // that do not fit are refused, and fall back.
  std::size_t arena_bytes = std::size_t{16} << 20;  // 1 MiB to 1 GiB: registered at once, and carved into chunks.
  bool huge_pages = true;                           // Ask for transparent huge pages; without them it works as well.
  Duration idle_memory_timeout = std::chrono::seconds(10);  // Arenas without a user for so long are given back.
  std::size_t queue_pairs_max = 16 * 1024;                  // 1 and more, at once on a device, within its limit.
  // 1 to 65,536 handshakes of clients, for each loop, that hold a queue pair and have not ended. At the bound the
  // oldest one is declined if it is older than a second, else the new one; who is declined takes the next transport.
  std::size_t half_open_max = 64;

  // ---- Faults
  // 0 to 60 s: a port that is down for so long ends its connections. Until then the device repeats what was not
  // answered.
  Duration port_down_grace = std::chrono::seconds(1);
  // Registered memory is kept from being copied on write by a child of fork(), which otherwise breaks receives without
  // an error on kernels before 5.12. There the child must not touch registered memory: it gets SIGSEGV. Of the whole
  // process.
  bool fork_safe = true;
  // The device may write the parts of a message to memory in any order. Completions keep theirs, and nothing that this
  // library does depends on more; exposed regions are never registered so, as applications may poll them.
  bool relaxed_ordering = true;

  // ---- The completion queue of each loop
  std::size_t cq_entries = 16 * 1024;  // 256 to 1,048,576 entries, within the device's limit. Connections that
                                       // could overflow it are refused.
  unsigned poll_burst = 32;            // 1 to 1024 completions taken at a time.

  friend bool operator==(const RdmaOptions&, const RdmaOptions&) = default;
};

}  // namespace hawser
