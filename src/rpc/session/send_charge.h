#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/owned_counter.h"
#include "hawser/detail/receive_account.h"
#include "pipe/held_charge.h"

namespace hawser::rpc {

// Charges the bytes that wait to be sent on a connection to its account, and decides how many may wait.
// docs/decisions/0059. Loop's thread only.
class SendCharge {
 public:
  // The charge is a multiple of this. Small data that waits lies in a block of at least this size.
  static constexpr std::size_t step_bytes = 64 * 1024;
  // Bytes that may wait on a connection whose account can't pay for another step.
  static constexpr std::size_t scarce_bytes_max = 64 * 1024;

  // `total` counts the charges of all connections of a loop; null: nobody counts. Both outlive this object.
  SendCharge(detail::ReceiveAccount& account, OwnedCounter* total) noexcept
      : account_(account), charge_(account), total_(total) {}
  SendCharge(const SendCharge&) = delete;
  SendCharge& operator=(const SendCharge&) = delete;
  ~SendCharge() { set(0); }

  // Sets the number of bytes that wait. They are held already, so the charge may exceed the limits of the account; what
  // the peer wants next waits or is refused then. Returns true if the charge has changed.
  bool set(std::size_t waiting) noexcept {
    if (waiting <= charged() && charged() - waiting < step_bytes) [[likely]]
      return false;
    const std::size_t wanted = (waiting + step_bytes - 1) / step_bytes * step_bytes;
    if (total_ != nullptr) total_->add(static_cast<std::int64_t>(wanted) - static_cast<std::int64_t>(charged()));
    charge_.set_always(wanted);
    return true;
  }
  std::size_t charged() const noexcept { return charge_.bytes(); }
  // The bytes that may wait before the connection is not read any more. `bytes_max`: send_backlog_bytes_max.
  std::size_t mark(std::size_t bytes_max) const noexcept {
    if (charged() == 0) return bytes_max;
    if (!account_.acquire(step_bytes)) return std::min(bytes_max, scarce_bytes_max);
    account_.release(step_bytes);
    return bytes_max;
  }

 private:
  detail::ReceiveAccount& account_;
  pipe::HeldCharge charge_;
  OwnedCounter* const total_;
};

}  // namespace hawser::rpc
