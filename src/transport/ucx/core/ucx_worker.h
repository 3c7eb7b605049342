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

// UCX on one loop: polls UCX and passes its events to the connections. Only the loop's thread may use it.
class UcxWorker final : public std::enable_shared_from_this<UcxWorker>, exec::Source, exec::Watcher {
 public:
  // Up to this size data is copied out of UCX's memory, because a copy costs less than keeping that memory.
  static constexpr std::size_t copied_bytes_max = 1024;
  // The destructor waits so long for endpoints to be closed, also by their peers. The remaining ones are cut off, or
  // closed in the background.
  static constexpr Duration drain_max = std::chrono::milliseconds(50);

  // After this many arms in a row that did not let the loop sleep, without work in between, the loop sleeps anyway and
  // polls UCX after `arm_rest_min`, later up to `arm_rest_max`. UCX reports an error at each arm, or pending work that
  // its progress never finds, such as the unfinished message of a killed peer in UCX's shared memory.
  static constexpr unsigned arms_in_vain_max = 1000;
  static constexpr Duration arm_rest_min = std::chrono::milliseconds(1);
  static constexpr Duration arm_rest_max = std::chrono::milliseconds(64);

  static Result<std::shared_ptr<UcxWorker>> make(std::shared_ptr<UcxContext> context, Loop& loop);
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  Loop& loop() noexcept { return loop_; }
  UcxCore& core() noexcept { return *core_; }
  const UcxOptions& options() const noexcept { return core_->context().options(); }
  Bytes address() const noexcept { return address_; }

  // Returns a token for `target`; active messages with this token go to it until leave(). UCX is polled while there is
  // any target.
  Result<std::uint64_t> enter(UcxTarget& target);
  void leave(std::uint64_t token) noexcept;
  std::size_t targets() const noexcept { return targets_; }

  // Closes an endpoint of this worker in the background.
  void close(std::unique_ptr<UcxEndpoint> endpoint, UcxClose how) noexcept;

  // Calls UcxTarget::process() of the target at the next poll.
  void process_soon(std::uint64_t token);
  // Calls UCX's progress until `done` returns true or `most` has passed. Returns whether `done` returned true. Must not
  // be called from a UCX callback.
  bool progress_until(const std::function<bool()>& done, Duration most);
  // Polls UCX and notifies the targets. The loop calls it; it may be called between the loop's polls too.
  bool poll() override;

  // Opens a UCX listener, through which peers may connect.
  Result<void> listen(const std::string& address);
  // Closes the listener. Endpoints that it created stay.
  void stop_listening() noexcept { listener_.reset(); }
  const UcxListener* listener() const noexcept { return listener_.get(); }
  // Passes an endpoint to the target with this token, and closes it if there is no such target.
  void deliver(std::uint64_t token, std::unique_ptr<UcxEndpoint> endpoint);

 private:
  struct Slot {
    UcxTarget* target = nullptr;
    std::uint64_t token = 0;
    bool dirty = false;
  };

  UcxWorker(UcxCore* core, Loop& loop, std::vector<std::byte> address);
  bool arm() override;
  // Returns UCS_OK if the event descriptor wakes the loop, UCS_INPROGRESS if it is ready, otherwise UCX's answer.
  ucs_status_t arm_events() noexcept;
  // UCX did not arm. Returns whether the loop sleeps until a timer.
  bool rest(ucs_status_t status);
  void rested() noexcept {}
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
  // Closes endpoints whose peers do not close theirs in time.
  MemberTimer<&UcxWorker::end_waiting> waiting_{*this};
  int event_fd_ = -1;  // -1 if the loop never sleeps.
  unsigned arms_in_vain_ = 0;
  Duration arm_rest_ = arm_rest_min;
  bool arm_reported_ = false;
  MemberTimer<&UcxWorker::rested> arm_timer_{*this};  // Wakes the loop, which polls this then.
  bool polled_ = false;
  bool delivering_ = false;
  unsigned rounds_ = 0;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::vector<std::uint32_t> dirty_;    // Slots with something to process.
  std::vector<std::uint32_t> working_;  // The batch that deliver() processes.
  std::size_t targets_ = 0;
  Block* block_ = nullptr;  // Small data is copied into it.
  std::size_t used_ = 0;
};

}  // namespace hawser::transport
