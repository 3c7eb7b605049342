#pragma once

#include <hawser/error.h>
#include <hawser/registered_buffer.h>
#include <hawser/scope.h>
#include <hawser/transfer_batch.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hawser::nixl {

class Peer;

// A prepared transfer, which may be posted again when it has ended.
class Transfer {
 public:
  // Blocks of one local and one remote registration.
  struct Part {
    RemoteRegion region;
    TransferBatch batch;
  };
  enum class Direction : bool { read, write };

  Transfer(std::shared_ptr<Peer> peer, Direction direction, std::vector<Part> parts) noexcept
      : peer_(std::move(peer)), direction_(direction), parts_(std::move(parts)) {}

  const std::shared_ptr<Peer>& peer() const noexcept { return peer_; }

  // Any thread. True from Peer::post() until the transfer has ended.
  bool active() const noexcept { return outcome_.load(std::memory_order_acquire) == active_outcome; }
  // While the transfer is not active: the outcome of the last post(). `ok` is success, and before the first one.
  ErrorCode outcome() const noexcept { return static_cast<ErrorCode>(outcome_.load(std::memory_order_acquire)); }

 private:
  friend class Peer;
  static constexpr int active_outcome = -1;

  void begin(std::optional<std::string> notification) {
    notification_ = std::move(notification);
    outcome_.store(active_outcome, std::memory_order_relaxed);
  }
  // Releases what the loop wrote, such as the data of a read, to the thread that sees the outcome.
  void end(ErrorCode code) noexcept { outcome_.store(static_cast<int>(code), std::memory_order_release); }

  const std::shared_ptr<Peer> peer_;
  const Direction direction_;
  const std::vector<Part> parts_;
  std::optional<std::string> notification_;
  std::atomic<int> outcome_ = 0;
  Scope running_;  // Loop's thread. Has one task while the transfer is active.
};

}  // namespace hawser::nixl
