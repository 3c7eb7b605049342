#pragma once

#include <cstddef>
#include <utility>

#include "hawser/detail/receive_account.h"

namespace hawser::transport {

// Charges an account for one part of the memory of messages that have not arrived completely
// (ReceiveAccount::arriving()). The account must outlive the charge. Without an account nothing is refused.
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
  // Changes the charge to `bytes`. Returns false, without any change, if the account refuses. A decrease is never
  // refused.
  [[nodiscard]] bool set(std::size_t bytes) noexcept {
    if (account_ == nullptr) return true;
    if (!account_->set_arriving(account_->arriving() - bytes_ + bytes)) return false;
    bytes_ = bytes;
    return true;
  }
  // Changes the charge without asking the account: for allocated memory that is a few bytes larger than was charged.
  void set_always(std::size_t bytes) noexcept {
    if (account_ == nullptr) return;
    account_->set_arriving_always(account_->arriving() - bytes_ + bytes);
    bytes_ = bytes;
  }
  // Ends the charge and forgets the account. Later calls have no effect.
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
