#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hawser/time.h"

namespace hawser {

// Whether UCX detects that a peer has failed.
enum class UcxErrorMode : std::uint8_t {
  // UCX does not detect it; the end of the byte stream shows it. UCX may use all its transports, including shared
  // memory. Peers that are killed cost the process memory and descriptors, and one of them can stop UCX's shared memory
  // for all other peers: use it only where no peer is killed.
  none,
  // UCX detects the failure and reports its own error, and endpoints can be closed without a flush. UCX uses only
  // transports that support this: TCP and RDMA, but not shared memory, which is removed from `tls` and UCX_TLS.
  peer,
};

// How the two UCX workers connect (wire-up).
enum class UcxWireUp : std::uint8_t {
  // By worker addresses in the handshake. A peer that is killed during the wire-up can end this process by an assertion
  // in UCX (seen over TCP with UCX 1.13): use it only where no peer is killed.
  worker_address,
  // By a UCX listener on the server (rdma_cm or TCP). RDMA without UCX's UD transport needs this.
  listener,
};

// Options of the UCX transport. UCX_... environment variables apply too; a field that is set here takes precedence.
struct UcxOptions {
  // ---- What UCX uses
  std::string tls;  // UCX transports, as in UCX_TLS: "tcp", "rc_verbs,self", "tcp,cma,self". Empty: UCX selects them.
  std::string net_devices;            // Devices, as in UCX_NET_DEVICES: "mlx5_0:1", "eth0". Empty: all.
  unsigned max_eager_rails = 0;       // Devices (rails) that share small messages, at most 16. 0: UCX's default (1).
  unsigned max_rendezvous_rails = 0;  // Devices (rails) that share large payloads, at most 16. 0: UCX's default (2).

  // ---- Messages and payloads of a connection
  // Payloads of at least this size are sent by rendezvous, when the receiver requests them. Smaller ones are sent with
  // their message. 4 KiB to 1 GiB; the larger value of both sides applies.
  static constexpr std::size_t rendezvous_bytes_least = std::size_t{4} << 10;
  static constexpr std::size_t rendezvous_bytes_most = std::size_t{1} << 30;
  std::size_t rendezvous_bytes_min = std::size_t{128} << 10;
  // Payloads of at least this size in a RegisteredBuffer are received from there without a copy. 4 KiB to 1 GiB. Over
  // TCP alone that is not possible, and rendezvous_bytes_min applies.
  std::size_t registered_bytes_min = std::size_t{32} << 10;
  // Small messages of one tick are sent as one active message of up to this size, 1 KiB to 64 KiB. A message that fits
  // one UCX fragment (8 KiB with most transports) is received without reassembly.
  std::size_t packed_bytes_max = 8000;
  static constexpr std::size_t window_bytes_min = std::size_t{64} << 10;
  static constexpr std::size_t window_bytes_max = std::size_t{1} << 30;
  // Bytes that a peer may send on one connection before the receiver has processed them, 64 KiB to 1 GiB. Bounds the
  // memory of a paused connection.
  std::size_t window_bytes = std::size_t{1} << 20;
  // Large payloads in transfer at the same time, per direction of a connection. 1 to 1,024.
  unsigned rendezvous_in_flight_max = 16;

  // ---- The loop
  // Largest number of calls of UCX's progress in one poll while there is work, 1 to 1,024. A larger value serves bursts
  // in fewer polls and delays the loop's other work.
  unsigned poll_burst = 16;

  // ---- How connections begin and end
  UcxErrorMode error_mode = UcxErrorMode::peer;  // Both sides need the same mode.
  // true: the end of a connection waits in the background until the peer has received everything that was sent (flush).
  // false with UcxErrorMode::peer: the endpoint is closed without waiting.
  bool close_with_flush = true;
  UcxWireUp wire_up = UcxWireUp::listener;  // Both sides need the same.
  // For UcxWireUp::listener, on the server: a numeric address of this machine that clients can reach, such as
  // "10.0.0.1:0" or "[fe80::1]:0". Port 0 selects a free port. Each loop has its own listener, so a fixed port works
  // with one loop only. Empty: a free port on the IPv4 address that the client has reached; IPv6 needs an address here.
  std::string listener_address;
  // From opening a connection to the first message of the peer over UCX.
  Duration wire_up_timeout = std::chrono::seconds(5);

  // ---- Bounds of connections
  unsigned connections_max = 4096;  // Per loop, 1 to 65,536. Further connections are refused.
  // Server: clients per loop that have been selected and from which no message has arrived over UCX yet, 1 to 65,536.
  // Further clients wait for one second at most. A client that is declined uses the next transport.
  unsigned half_open_max = 256;

  // ---- The log
  std::string log_level = "fatal";  // Level of UCX's own log on standard output, as in UCX_LOG_LEVEL.

  friend bool operator==(const UcxOptions&, const UcxOptions&) = default;
};

}  // namespace hawser
