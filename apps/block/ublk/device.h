#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "block/ublk/control.h"
#include "hawser/client.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/time.h"

namespace hawser::block::ublk {

struct UblkDeviceOptions {
  std::string server = {};  // Address of the block server.
  ClientOptions client = {};
  std::string volume = {};
  Duration outage_max = {};      // RemoteServer.
  std::string client_name = {};  // Empty: client_name_of_device().
  LoopOptions loop = {};
  std::uint16_t depth = 128;
  std::optional<std::uint32_t> number = {};  // The device has it. Empty: the driver chooses.
  // Takes the device over whose server has ended. It must be of this volume and `client_name`.
  bool recovers = false;
};

// A volume of a block server that is a block device of this machine's kernel, by the driver ublk_drv. A thread of its
// own serves the requests.
//
// When the process ends without stop(), the device waits for another process, which gets the requests in progress
// again. It opens the volume before: the server has ended the requests of its predecessor then, so that none of them is
// executed late (decision 92), and requests may be executed twice.
class UblkDevice {
 public:
  static Result<std::unique_ptr<UblkDevice>> start(UblkDeviceOptions options);
  UblkDevice(const UblkDevice&) = delete;
  UblkDevice& operator=(const UblkDevice&) = delete;
  // Leaves the device to another process.
  ~UblkDevice();

  std::uint32_t number() const noexcept { return number_; }
  // Ends and removes the device, after the requests in progress and what the kernel has still to write. Returns false
  // if it is mounted, or used exclusively by others: it is left to another process then, and after an error too.
  Result<bool> stop();

 private:
  struct Served;

  UblkDevice(UblkControl control, UblkDeviceOptions options);
  Result<void> serve();
  Result<void> check_medium();
  Result<void> find_volume();
  Result<void> open_queue(int descriptor, UblkDeviceInfo info);
  Result<UblkDeviceInfo> take_over();
  Result<void> check_mark(const UblkDeviceInfo& info) const;
  Result<void> remove();

  UblkControl control_;
  const UblkDeviceOptions options_;
  std::string unique_name_;  // NAME@ID of the volume.
  std::uint64_t mark_ = 0;
  std::uint32_t number_ = 0;
  std::unique_ptr<Served> served_;
};

// Removes a device whose server has ended.
Result<void> remove_device(std::uint32_t number);

}  // namespace hawser::block::ublk
