#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace hawser::rdma_tests {

inline constexpr const char* devices_folder = "/sys/class/infiniband";

// Names of the counters of Soft-RoCE and of cards.
inline constexpr std::array not_ready_counters = {"rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err",
                                                  "rnr_nak_retry_err", "out_of_buffer"};

inline bool any_device() {
  std::error_code error;
  const std::filesystem::directory_iterator first(devices_folder, error);
  return !error && first != std::filesystem::directory_iterator();
}

// Returns how often a receiver was not ready, as the sum over all devices.
inline std::uint64_t not_ready_count() {
  std::uint64_t total = 0;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(devices_folder, error)) {
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", error)) {
      for (const char* name : not_ready_counters) {
        std::uint64_t value = 0;
        if (std::ifstream(port.path() / "hw_counters" / name) >> value) total += value;
      }
    }
  }
  return total;
}

}  // namespace hawser::rdma_tests
