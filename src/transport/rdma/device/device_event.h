#pragma once

#include <cstdint>
#include <string_view>

namespace hawser::transport::rdma {

enum class DeviceEventKind : std::uint8_t {
  device_fatal,  // The device is gone or broken. No object that was made on it works any more.
  port_down,
  port_up,
  queue_pair_fatal,
  completion_queue_overrun,
  shared_receive_queue_low,  // The number of receives fell below the limit that SharedReceiveQueue::set_limit() armed.
  // A failed queue pair uses up no more shared receives. The completions of those that it has used up are in the
  // completion queue. Not every device raises this event.
  last_receive_reached,
  shared_receive_queue_broken,
  addresses_changed,  // GIDs, the LID, or other values that a subnet manager may have changed.
};
std::string_view to_string(DeviceEventKind kind) noexcept;

struct DeviceEvent {
  DeviceEventKind kind = DeviceEventKind::device_fatal;
  unsigned port = 0;             // Set in port events.
  std::uint32_t queue_pair = 0;  // Set in queue_pair_fatal and last_receive_reached.
  // The CompletionQueue or SharedReceiveQueue that a queue event is about. Only for comparison: the object may have
  // been destroyed.
  const void* queue = nullptr;
};

}  // namespace hawser::transport::rdma
