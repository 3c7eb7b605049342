#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "hawser/time.h"

namespace hawser {

// What UCX does for a peer that dies.
enum class UcxErrorMode : std::uint8_t {
  // Nothing: the stream beside the transport tells. UCX may use every transport, shared memory among them.
  none,
  // UCX watches the peer, tells its true error, and endpoints can be cut off. UCX uses only transports that can do
  // that: tcp and RDMA, but not its shared memory.
  peer,
};

// How the two workers find each other.
enum class UcxWireUp : std::uint8_t {
  worker_address,  // Through the addresses in the handshake. UCX chooses the transports.
  listener,  // Through a listener of UCX's on the server (rdma_cm, or TCP), as RDMA without UCX's UD transport needs.
};

// UCX as a way beside the stream. UCX_... environment variables apply too; a field that is set here goes first.
struct UcxOptions {
  std::string tls;               // Transports, as UCX_TLS: "tcp", "rc_verbs,self", "shm,self,cma". Empty: UCX chooses.
  std::string net_devices;       // Devices, as UCX_NET_DEVICES: "mlx5_0:1", "eth0". Empty: all.
  unsigned max_eager_rails = 0;  // Devices that small messages are spread over, at most 16; 0: UCX's default (1).
  unsigned max_rendezvous_rails = 0;  // The same for large payloads; 0: UCX's default (2).

  // Payloads from here on go by rendezvous, when the receiver asks for them; smaller ones travel with their message. 4
  // KiB to 1 GiB; the larger one of both sides counts.
  static constexpr std::size_t rendezvous_bytes_least = std::size_t{4} << 10;
  static constexpr std::size_t rendezvous_bytes_most = std::size_t{1} << 30;
  std::size_t rendezvous_bytes_min = std::size_t{128} << 10;
  // Payloads in a RegisteredBuffer from here on are received from where they lie instead of being copied, 4 KiB to 1
  // GiB. Over TCP alone nobody can reach there, and rendezvous_bytes_min counts.
  std::size_t registered_bytes_min = std::size_t{32} << 10;
  // Small messages of one tick leave as one active message of up to so many bytes, 1 KiB to 64 KiB. What fits one
  // fragment of UCX's (8 KiB with most transports) is received without being put together again.
  std::size_t packed_bytes_max = 8000;
  static constexpr std::size_t window_bytes_min = std::size_t{64} << 10;
  static constexpr std::size_t window_bytes_max = std::size_t{1} << 30;
  // What a peer may send on one connection before we have taken it, 64 KiB to 1 GiB: bounds what a paused connection
  // holds.
  std::size_t window_bytes = std::size_t{1} << 20;
  // Large payloads on their way at once, in each direction of a connection, 1 to 1,024.
  unsigned rendezvous_in_flight_max = 16;

  // How often a poll asks UCX for progress while there is some, 1 to 1,024. More serves bursts in fewer polls, and
  // keeps the loop's other work waiting for longer.
  unsigned poll_burst = 16;
  UcxErrorMode error_mode = UcxErrorMode::none;
  // Ending a connection waits in the background until the peer has all that was sent. Without it, and with
  // UcxErrorMode::peer, the endpoint is cut off.
  bool close_with_flush = true;
  UcxWireUp wire_up = UcxWireUp::worker_address;
  // With UcxWireUp::listener, on the server: an address of this machine that clients reach, in digits, as "10.0.0.1:0"
  // or "[fe80::1]:0"; port 0 takes a free one. One listener a loop, so a fixed port serves one loop only.
  std::string listener_address;
  Duration wire_up_timeout = std::chrono::seconds(5);  // From opening a connection to the peer's first sign over UCX.
  unsigned connections_max = 4096;                     // Of one loop, 1 to 65,536; more are refused.
  std::string log_level = "fatal";                     // UCX's own log on standard output, as UCX_LOG_LEVEL.

  friend bool operator==(const UcxOptions&, const UcxOptions&) = default;
};

}  // namespace hawser
