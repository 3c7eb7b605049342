#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/finding.h"
#include "cli/doctor/host.h"
#include "hawser/task.h"
#include "hawser/time.h"

// The doctor over two hosts: this one calls `hawser doctor --serve` of the other one.
namespace hawser::cli::doctor {

struct PeerPlan {
  std::string host;
  std::string port;
  Duration connect_timeout = std::chrono::seconds(5);
  // Limits for each transport.
  Duration pings = std::chrono::seconds(2);
  unsigned pings_max = 1000;
  Duration blocks = std::chrono::seconds(1);         // For each direction.
  Duration block_timeout = std::chrono::seconds(5);  // One block.
};

// Splits "host", "host:port", "[v6]" or "[v6]:port". Fails if the host is empty, or if the port is not a number
// up to 65535.
Result<PeerPlan> peer_plan(std::string_view address);

// A connection by hand, before anything of Hawser is sent.
struct TcpProbe {
  enum class Outcome : std::uint8_t { connected, not_resolved, refused, silent, unreachable };
  Outcome outcome = Outcome::silent;
  std::string error;  // Unless it is connected.
  std::string local;  // Numeric addresses.
  std::string remote;
  std::int64_t path_mtu_bytes = 0;
};
TcpProbe probe_tcp(const PeerPlan& plan);

// The measurement of one transport.
struct Traffic {
  std::string transport;  // "tcp", "shm", "ucx", "rdma"
  std::string refusal;    // Why there is no connection; empty: there is one.
  unsigned pings = 0;
  double ping_us_p50 = 0;
  double ping_us_p99 = 0;
  double sent_mbyte_per_s = 0;      // From here to the peer, in 10^6 bytes.
  double received_mbyte_per_s = 0;  // From the peer.
  std::string error;                // Why the measurement ended early; empty: it did not.
  bool blocks_stalled = false;      // PINGs came back, and a block did not arrive in time.
};

struct PeerFacts {
  std::string address;
  TcpProbe probe;
  std::string error;  // Why the facts of the peer are missing; empty: they are there.
  HostFacts here;     // Before the traffic, as `there`.
  HostFacts there;
  HostFacts here_after;
  HostFacts there_after;
  std::vector<Traffic> traffic;
};

// Measures. Sends up to 1,000 PINGs and blocks of 1 MiB for a second in each direction over each transport.
PeerFacts read_peer(const PeerPlan& plan);
Section examine_peer(const PeerFacts& facts);

}  // namespace hawser::cli::doctor
