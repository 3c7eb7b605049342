#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "block/nbd/socket_descriptor.h"
#include "block/ublk/format.h"
#include "hawser/error.h"

namespace hawser::block::ublk {

std::string block_device_path(std::uint32_t device);         // /dev/ublkbN
std::string block_device_number_path(std::uint32_t device);  // The file of sysfs with its number.
std::string character_device_path(std::uint32_t device);     // /dev/ublkcN

// Makes and removes devices, by /dev/ublk-control. Functions block. One thread at a time. Errors have errno values.
class UblkControl {
 public:
  // Fails with ENOENT if the driver is not loaded.
  static Result<UblkControl> open();

  // Returns what the driver has made of `wanted`.
  Result<UblkDeviceInfo> add(UblkDeviceInfo wanted);
  Result<UblkDeviceInfo> info(std::uint32_t device);
  Result<void> set_parameters(std::uint32_t device, UblkParameters parameters);
  // Makes the block device. Blocks until all tags have been fetched, and then the device is served already.
  Result<void> start(std::uint32_t device);
  // Removes the block device, after its requests in progress. Fetches end.
  Result<void> stop(std::uint32_t device);
  // Removes a device, which is stopped before. Its number is free when no process has it open any more.
  Result<void> remove(std::uint32_t device);
  // Fails with EBUSY while the earlier server has not ended.
  Result<void> start_recovery(std::uint32_t device);
  // Blocks as start().
  Result<void> end_recovery(std::uint32_t device);

 private:
  explicit UblkControl(nbd::SocketDescriptor driver) noexcept : driver_(std::move(driver)) {}
  Result<void> execute(unsigned operation, UblkControlCommand command, const char* action);

  nbd::SocketDescriptor driver_;  // The open file /dev/ublk-control.
};

}  // namespace hawser::block::ublk
