#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"

namespace hawser::compress {

// Output of at most `bytes_max` bytes, which grows in proportion to what has been written. `charge` pays for it with
// `account`, if that is not null.
class GrowingOutput {
 public:
  GrowingOutput(std::size_t first, std::size_t bytes_max, detail::ReceiveAccount* account,
                detail::ReceiveCharge& charge)
      : bytes_max_(bytes_max), account_(account), charge_(charge) {
    allowed_ = resize(std::clamp<std::size_t>(first, 1, std::max<std::size_t>(bytes_max, 1)));
  }

  // False if the account has refused memory.
  bool allowed() const noexcept { return allowed_; }
  bool full() const noexcept { return room() == 0; }
  std::byte* end() noexcept { return buffer_.mutable_data() + used_; }
  std::size_t room() const noexcept { return std::min(buffer_.size(), bytes_max_) - used_; }
  void add(std::size_t bytes) noexcept { used_ += bytes; }
  bool at_limit() const noexcept { return used_ >= bytes_max_; }
  // Called when it is full and below the limit.
  void grow() { allowed_ = resize(std::min(buffer_.size() * 2, bytes_max_)); }
  Buffer take() { return buffer_.slice(0, used_); }

 private:
  bool resize(std::size_t bytes) {
    if (account_ != nullptr && !charge_.add(*account_, bytes - buffer_.size())) return false;
    Buffer larger = Buffer::allocate(bytes);
    if (used_ != 0) std::memcpy(larger.mutable_data(), buffer_.data(), used_);
    buffer_ = std::move(larger);
    return true;
  }

  const std::size_t bytes_max_;
  detail::ReceiveAccount* const account_;
  detail::ReceiveCharge& charge_;
  Buffer buffer_;
  std::size_t used_ = 0;
  bool allowed_ = true;
};

}  // namespace hawser::compress
