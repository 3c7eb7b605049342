#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "hawser/loop.h"
#include "hawser/timer.h"
#include "hawser/transport/poller.h"
#include "transport/ucx/core/ucx_core.h"
#include "transport/ucx/core/ucx_listener.h"

namespace hawser::transport {

// UCX on one loop: polls it, and brings what it has to the connections. Belongs to the loop and its thread.
class UcxWorker final : public std::enable_shared_from_this<UcxWorker>, exec::Source, exec::Watcher {
 public:
  // Small data is copied out of UCX's memory, as that costs less than keeping it.
  static constexpr std::size_t copied_bytes_max = 1024;
  // How long the end of a worker waits for its endpoints to be closed, by their peers too; what takes longer is cut
  // off, or ends in the background.
  static constexpr Duration drain_max = std::chrono::milliseconds(50);

  static Result<std::shared_ptr<UcxWorker>> make(std::shared_ptr<UcxContext> context, Loop& loop);
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  Loop& loop() noexcept { return loop_; }
  UcxCore& core() noexcept { return *core_; }
  const UcxOptions& options() const noexcept { return core_->context().options(); }
  Bytes address() const noexcept { return address_; }

  // Gives `target` a token, by which its messages find it until leave(). While anybody is here UCX is polled.
  Result<std::uint64_t> enter(UcxTarget& target);
  void leave(std::uint64_t token) noexcept;
  std::size_t targets() const noexcept { return targets_; }

  // Closes an endpoint of this worker's in the background.
  void close(std::unique_ptr<UcxEndpoint> endpoint, UcxClose how) noexcept;

  // UcxTarget::process() at the next poll.
  void process_soon(std::uint64_t token);
  // Asks UCX for what there is now, and waits until `done` or until `most` is over. Whether it is done. Not from within
  // UCX.
  bool progress_until(const std::function<bool()>& done, Duration most);
  // A poll outside of the loop's turn.
  bool poll() override;

  // From now on others may wire up by UCX's listener.
  Result<void> listen(const std::string& address);
  // Not any more, but for those who have.
  void stop_listening() noexcept { listener_.reset(); }
  const UcxListener* listener() const noexcept { return listener_.get(); }
  // Gives an endpoint to the target with this token, if there is one.
  void deliver(std::uint64_t token, std::unique_ptr<UcxEndpoint> endpoint);

 private:
  struct Slot {
    UcxTarget* target = nullptr;
    std::uint64_t token = 0;
    bool dirty = false;
  };

  // Ends what waits for peers that do not close.
  struct WaitTimer final : Timer {
    explicit WaitTimer(UcxWorker& owner) noexcept : Timer(&WaitTimer::fire), worker(owner) {}
    static void fire(Timer& timer) noexcept { static_cast<WaitTimer&>(timer).worker.end_waiting(); }
    UcxWorker& worker;
  };

  UcxWorker(UcxCore* core, Loop& loop, std::vector<std::byte> address);
  bool arm() override;
  void on_ready(exec::Readiness) override { poll(); }

  static ucs_status_t on_message(void* arg, const void* header, std::size_t header_bytes, void* data, std::size_t size,
                                 const ucp_am_recv_param_t* param) noexcept;
  ucs_status_t on_active_message(Bytes header, void* data, std::size_t size, const ucp_am_recv_param_t& param);
  std::byte* copy(const void* data, std::size_t size, Block*& block);
  Slot* find(std::uint64_t token) noexcept;
  void end_waiting() noexcept;
  void mark(Slot& slot);
  bool deliver();

  Loop& loop_;
  UcxCore* const core_;
  const std::vector<std::byte> address_;
  std::unique_ptr<UcxListener> listener_;
  WaitTimer waiting_{*this};
  int event_fd_ = -1;  // -1 while the loop is never to sleep.
  bool polled_ = false;
  bool delivering_ = false;
  unsigned rounds_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> dirty_;    // Slots with something to process.
  std::vector<std::uint32_t> working_;  // The batch that deliver() is at.
  std::size_t targets_ = 0;
  Block* block_ = nullptr;  // Small data is copied here, side by side.
  std::size_t used_ = 0;
};

}  // namespace hawser::transport
