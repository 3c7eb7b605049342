#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "block/nbd/exports.h"
#include "block/ublk/ublk_request.h"
#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/scope.h"
#include "hawser/task.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"

namespace hawser::block::ublk {

// The requests that the kernel may have in progress at a device.
struct UblkQueueSize {
  std::uint16_t depth = 0;
  std::uint32_t io_bytes_max = 0;  // One has so many bytes of data.
};

// Serves the queue of a device of the driver: the kernel's requests become requests of `device`, up to one for each tag
// at the same time. The data are copied by the kernel, between its pages and memory of the queue. Used on the loop,
// whose thread is the server of the queue for the driver.
class UblkQueue final : exec::Watcher, exec::Source, exec::TickEnd {
 public:
  // Fetches all tags, so that the device can start: the start of a device without a fetch for each tag would not end.
  // Fails if the driver refuses one. `descriptor` of /dev/ublkcN, which the queue owns from now on. `device` outlives
  // the queue.
  static Task<Result<std::unique_ptr<UblkQueue>>> open(Loop& loop, nbd::NbdDevice& device, int descriptor,
                                                       UblkQueueSize size);
  UblkQueue(const UblkQueue&) = delete;
  UblkQueue& operator=(const UblkQueue&) = delete;
  // The kernel takes the requests back that have not ended.
  ~UblkQueue();

  // Waits until the device has been stopped, and all requests have ended.
  Task<void> join();

 private:
  struct Kernel;

  UblkQueue(Loop& loop, nbd::NbdDevice& device, UblkQueueSize size, std::unique_ptr<Kernel> kernel);
  void on_ready(exec::Readiness) override { poll(); }
  bool poll() override;
  bool arm() override;
  void on_tick_end() override;
  Task<Result<void>> fetch();
  void begin(std::uint16_t tag);
  Task<void> serve(std::uint16_t tag, UblkRequest request);
  void send(unsigned operation, std::uint16_t tag, std::int32_t result);

  Loop& loop_;
  nbd::NbdDevice& device_;
  const UblkQueueSize size_;
  const UblkLimits limits_;
  const std::unique_ptr<Kernel> kernel_;
  unsigned tags_;                    // The driver has not taken so many back.
  int refused_ = 0;                  // Errno value of a fetch that has failed, and not because the device was stopped.
  std::coroutine_handle<> joining_;  // Null if nobody waits for tags_ to be 0.
  MemberTimer<&UblkQueue::on_tick_end> again_{*this};
  Scope requests_;
};

}  // namespace hawser::block::ublk
