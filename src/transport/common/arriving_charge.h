#pragma once

#include <cstddef>
#include <utility>

#include "hawser/detail/receive_account.h"

namespace hawser::transport {

// Charges an account for one part of the memory of messages that have not arrived completely
// (ReceiveAccount::arriving()). The account outlives the charge. Without an account nothing is refused.
class ArrivingCharge {
 public:
  ArrivingCharge() noexcept = default;
  explicit ArrivingCharge(hawser::detail::ReceiveAccount* account) noexcept : account_(account) {}
  ArrivingCharge(ArrivingCharge&& other) noexcept
      : account_(std::exchange(other.account_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ArrivingCharge& operator=(ArrivingCharge&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ArrivingCharge() { reset(); }

  const hawser::detail::ReceiveAccount* account() const noexcept { return account_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // False: the account refuses, and the charge stays as it was. Less than before is never refused.
  [[nodiscard]] bool set(std::size_t bytes) noexcept {
    if (account_ == nullptr) return true;
    if (!account_->set_arriving(account_->arriving() - bytes_ + bytes)) return false;
    bytes_ = bytes;
    return true;
  }
  // For memory that has been allocated already, by a few bytes more than was charged.
  void set_always(std::size_t bytes) noexcept {
    if (account_ == nullptr) return;
    account_->set_arriving_always(account_->arriving() - bytes_ + bytes);
    bytes_ = bytes;
  }
  // Nothing is charged any more, now or later.
  void reset() noexcept {
    if (account_ == nullptr) return;
    set_always(0);
    account_ = nullptr;
  }

 private:
  hawser::detail::ReceiveAccount* account_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hawser::transport
