#include "transport/rdma/device/verbs.h"

#include <algorithm>
#include <cstdio>

namespace hawser::transport::rdma {

bool Gid::ipv4_mapped() const noexcept {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](std::byte b) { return b == std::byte{0}; }) &&
         bytes[10] == std::byte{0xff} && bytes[11] == std::byte{0xff};
}

std::string to_string(const Gid& gid) {
  std::string text;
  char part[8];
  if (gid.ipv4_mapped()) {
    text = "::ffff:";
    for (std::size_t i = 12; i < 16; ++i)
      text += (i == 12 ? "" : ".") + std::to_string(std::to_integer<int>(gid.bytes[i]));
    return text;
  }
  for (std::size_t i = 0; i < 16; i += 2) {
    const unsigned value = std::to_integer<unsigned>(gid.bytes[i]) << 8 | std::to_integer<unsigned>(gid.bytes[i + 1]);
    std::snprintf(part, sizeof part, "%s%x", i == 0 ? "" : ":", value);
    text += part;
  }
  return text;
}

std::string_view to_string(GidType type) noexcept {
  switch (type) {
    case GidType::infiniband: return "infiniband";
    case GidType::roce_v1: return "roce_v1";
    case GidType::roce_v2: return "roce_v2";
  }
  return "unknown";
}

std::string_view to_string(DeviceEventKind kind) noexcept {
  switch (kind) {
    case DeviceEventKind::device_fatal: return "the device is gone";
    case DeviceEventKind::port_down: return "the port is down";
    case DeviceEventKind::port_up: return "the port is up";
    case DeviceEventKind::queue_pair_fatal: return "a queue pair broke";
    case DeviceEventKind::completion_queue_overrun: return "a completion queue ran over";
    case DeviceEventKind::shared_receive_queue_low: return "a shared receive queue runs low";
    case DeviceEventKind::last_receive_reached: return "a queue pair failed";
    case DeviceEventKind::shared_receive_queue_broken: return "a shared receive queue broke";
    case DeviceEventKind::addresses_changed: return "the port's addresses changed";
  }
  return "unknown";
}

std::string_view to_string(WorkStatus status) noexcept {
  switch (status) {
    case WorkStatus::success: return "success";
    case WorkStatus::flushed: return "the queue pair broke before";
    case WorkStatus::retry_exceeded: return "the peer's device does not answer (retries exceeded)";
    case WorkStatus::rnr_exceeded: return "the peer had no receive posted (receiver not ready)";
    case WorkStatus::remote_access: return "the peer's device refused the access";
    case WorkStatus::remote_invalid: return "the peer's device refused the request as invalid";
    case WorkStatus::remote_operation: return "the peer's device failed";
    case WorkStatus::local_error: return "a request of ours was invalid";
    case WorkStatus::fatal: return "the device failed";
  }
  return "unknown";
}

}  // namespace hawser::transport::rdma
