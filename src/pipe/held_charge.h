#pragma once

#include <cstddef>

#include "hawser/detail/receive_account.h"

namespace hawser::pipe {

// The charge for memory of a connection whose size changes: it is set to what is held. The account outlives the charge.
// Loop's thread only.
class HeldCharge {
 public:
  explicit HeldCharge(hawser::detail::ReceiveAccount& account) noexcept : account_(account) {}
  HeldCharge(const HeldCharge&) = delete;
  HeldCharge& operator=(const HeldCharge&) = delete;
  ~HeldCharge() { set_always(0); }

  std::size_t bytes() const noexcept { return bytes_; }
  // False, without an effect, if the account refuses. A decrease is never refused.
  [[nodiscard]] bool set(std::size_t bytes) noexcept {
    if (bytes > bytes_ && !account_.acquire(bytes - bytes_)) return false;
    if (bytes < bytes_) account_.release(bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }
  // For memory that is held already and has another bound. See ReceiveAccount::acquire_always().
  void set_always(std::size_t bytes) noexcept {
    if (bytes > bytes_) account_.acquire_always(bytes - bytes_);
    if (bytes < bytes_) account_.release(bytes_ - bytes);
    bytes_ = bytes;
  }

 private:
  hawser::detail::ReceiveAccount& account_;
  std::size_t bytes_ = 0;
};

}  // namespace hawser::pipe
