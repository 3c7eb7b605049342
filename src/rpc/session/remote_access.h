#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "exec/condition.h"
#include "hawser/loop.h"
#include "hawser/memory.h"
#include "hawser/transport/remote_memory.h"
#include "rpc/session/memory_frames.h"

namespace hawser::detail {

class CallChannel;

// An operation as the application requested it.
struct RemoteRequest {
  wire::MemoryAction action = wire::MemoryAction::read;
  RemoteRegion region;
  // Null: `single` is the only block.
  const TransferBatch* batch = nullptr;
  TransferBatch::Run single = {};
  std::uint64_t base = 0;
  wire::AtomicOperands operands = {};
  RemoteOptions options = {};
  TransferPriority priority = TransferPriority::interactive;
  std::shared_ptr<const void> local_use = {};  // As in transport::RemoteOperation.

  bool atomic() const noexcept { return wire::MemoryBody::atomic(static_cast<std::uint32_t>(action)); }
};

// Returns why the request cannot succeed; empty if it can.
std::string mistake(const RemoteRequest& request);

// One access in progress. Destroying the object abandons the access.
class RemoteAccess : public std::enable_shared_from_this<RemoteAccess> {
 public:
  RemoteAccess(const RemoteAccess&) = delete;
  RemoteAccess& operator=(const RemoteAccess&) = delete;
  virtual ~RemoteAccess() = default;

  // Starts the deadline and the watch of the stop token, unless the access has ended.
  void watch(const RemoteOptions& options);
  bool ended() const noexcept { return outcome_.has_value(); }
  bool posted() const noexcept { return posted_ || ended(); }
  // Messages that are sent after posted() take effect after the access. Otherwise only after ended().
  virtual bool ordered() const noexcept = 0;
  // True if a device executes the access.
  virtual bool by_device() const noexcept = 0;
  const Result<void>& outcome() const noexcept { return *outcome_; }
  virtual std::uint64_t previous() const noexcept { return 0; }
  exec::Condition::Waiter changed() noexcept { return changed_.wait(); }

  // The client's connection on which the access was begun.
  const CallChannel* channel = nullptr;

 protected:
  explicit RemoteAccess(Loop& loop) noexcept : loop_(loop), changed_(loop) {}
  void set_posted();
  void set_done(const std::optional<Error>& error);
  // Abandons what the transport or the session still does.
  virtual void withdraw() noexcept = 0;
  // The end of time without a timeout.
  Time deadline(const RemoteOptions& options) const noexcept;

 private:
  struct Stopper {
    RemoteAccess* access;
    void operator()() const noexcept;
  };

  void give_up(ErrorCode code, const char* text);
  void on_deadline() noexcept;

  Loop& loop_;
  exec::Condition changed_;
  std::optional<Result<void>> outcome_;
  bool posted_ = false;
  MemberTimer<&RemoteAccess::on_deadline> deadline_{*this};
  std::optional<std::stop_callback<Stopper>> stop_;
};

// An access by frames.
class FrameAccess final : public RemoteAccess, MemoryOperation {
 public:
  explicit FrameAccess(Loop& loop) noexcept : RemoteAccess(loop) {}
  ~FrameAccess() override { withdraw(); }
  Result<void> start(MemoryFrames& frames, const RemoteRequest& request);
  // The owner may refuse what the connection has carried, so that only an answer shows that the access took effect.
  bool ordered() const noexcept override { return false; }
  bool by_device() const noexcept override { return false; }
  std::uint64_t previous() const noexcept override { return MemoryOperation::previous; }

 private:
  void on_posted() override { set_posted(); }
  void on_done(const std::optional<Error>& error) override;
  void withdraw() noexcept override;

  TransferBatch::Run single_;
  MemoryFrames* frames_ = nullptr;  // Non-null exactly while the session knows this operation.
};

// An access by the device.
class DeviceAccess final : public RemoteAccess, transport::RemoteOperation {
 public:
  explicit DeviceAccess(Loop& loop) noexcept : RemoteAccess(loop) {}
  ~DeviceAccess() override { withdraw(); }
  Result<void> start(transport::OneSidedMemory& remote, const RemoteRegion::Place& place, const RemoteRequest& request);
  bool ordered() const noexcept override { return true; }
  bool by_device() const noexcept override { return true; }

 private:
  void on_posted() override { set_posted(); }
  void on_done(const std::optional<Error>& error) override;
  void withdraw() noexcept override;

  TransferBatch::Run single_;
  transport::OneSidedMemory* remote_ = nullptr;  // Non-null exactly while the transport knows this operation.
};

}  // namespace hawser::detail
