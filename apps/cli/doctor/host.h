#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/doctor/system_files.h"
#include "hawser/error.h"
#include "transport/rdma/device/verbs.h"

// Facts about a host that two doctors exchange. Both ends of `hawser doctor --peer` send them as results of a call.
namespace hawser::cli::doctor {

struct HostCounter {
  std::string name;
  std::uint64_t value = 0;
};

// An entry of the GID table of an RDMA port.
struct HostGid {
  std::uint32_t index = 0;
  std::string type;  // "infiniband", "roce_v1", "roce_v2"
  std::string gid;
};

struct TargetAddress {
  std::string device;
  std::uint32_t number = 0;
  bool active = false;
  std::uint32_t mtu_bytes = 0;
  double gbit_per_s = 0;
  std::string interface;  // RoCE: its network interface; empty: not known.
  std::string ecn;        // RoCE: priorities for which ECN is enabled, such as "3"; "none"; empty: not known.
  std::vector<HostGid> gids;
  std::vector<HostCounter> counters;
};

struct HostInterface {
  std::string name;
  std::string state;                   // "up" or "down"
  std::int64_t mtu_bytes = 0;          // 0: not known.
  std::int64_t mbit_per_s = 0;         // 0: not known, as with virtual interfaces.
  std::vector<std::string> addresses;  // "10.0.0.1/24", "fd00::1/64"
};

struct HostFacts {
  std::uint32_t format = 1;
  std::string hawser;  // The version of the library.
  std::string kernel;
  std::vector<HostInterface> interfaces;
  std::vector<TargetAddress> ports;
};

// Interfaces without an address and GIDs that are zero are left out. At most as much as check_host() permits.
HostFacts read_host(const SystemFiles& files, transport::rdma::Verbs& verbs);

// Makes the facts of a peer harmless: control characters are escaped and texts are cut. Fails if there are more parts
// than a host has.
Result<HostFacts> checked_host(HostFacts facts);

// The interface that has this address, which is numeric; null: none.
const HostInterface* interface_with(const HostFacts& host, std::string_view address);

// True if the host that has this interface address ("10.0.0.1/24") reaches the other address directly.
bool same_network(std::string_view with_prefix, std::string_view address);

}  // namespace hawser::cli::doctor
