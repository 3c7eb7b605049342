#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/machine.h"
#include "cli/doctor/rdma_loopback.h"
#include "cli/doctor/system_files.h"
#include "hawser/rdma_options.h"
#include "hawser/time.h"
#include "transport/rdma/device/verbs.h"

namespace hawser::cli::doctor {

struct NetworkInterface {
  std::string name;
  std::int64_t mtu_bytes = 0;
  std::string state;  // "up", "down", "unknown".
};

struct RdmaPortFacts {
  transport::rdma::PortStatus status;
  std::string physical_state;                 // "5: LinkUp"
  std::optional<NetworkInterface> interface;  // Present for RoCE only.
  std::vector<transport::rdma::GidEntry> addresses;
  std::optional<transport::rdma::GidEntry> chosen;     // The address that the options select.
  std::string not_chosen;                              // Reason why no address was selected.
  std::vector<transport::rdma::RdmaCounter> counters;  // Values before the self-test.
  std::vector<transport::rdma::RdmaCounter> moved;     // Increases during the self-test.
  std::optional<SelfTestResult> self_test;             // Present for active ports with an address.
  std::string self_test_error;
};

struct RdmaDeviceFacts {
  std::string name;
  std::string open_error;  // Reason why the device cannot be opened; then the rest is empty.
  transport::rdma::DeviceLimits limits;
  std::vector<RdmaPortFacts> ports;
  std::int64_t numa_node = -1;
  std::string slot_speed, slot_speed_max;  // "16.0 GT/s PCIe"
  std::int64_t slot_width = 0, slot_width_max = 0;
};

struct RdmaFacts {
  RdmaOptions options;
  std::string options_error;
  std::string unavailable;  // Reason why devices cannot be listed.
  std::vector<RdmaDeviceFacts> devices;
  std::vector<std::string> kernel_devices;        // Devices that the kernel knows, with or without access.
  std::vector<std::string> cards_without_driver;  // PCI addresses of cards that look like RDMA.
  bool device_files = false;                      // /dev/infiniband exists.
  ProcessLimit locked_bytes;
  bool may_lock_any = false;
  std::size_t numa_nodes = 0;
};

// `self_test` is the duration of each of the two measurements on each active port. Zero: nothing is sent.
RdmaFacts read_rdma(const SystemFiles& files, transport::rdma::Verbs& verbs, const MachineFacts& machine,
                    const RdmaOptions& options, Duration self_test);

}  // namespace hawser::cli::doctor
