#pragma once

#include <cstddef>

#include "hawser/detail/receive_account.h"

namespace hawser::transport {

// Counts messages that wait while their connection is not read (ReceiveAccount::begin_unread()). The account must
// outlive the charge.
class UnreadCharge {
 public:
  UnreadCharge() noexcept = default;
  UnreadCharge(const UnreadCharge&) = delete;
  UnreadCharge& operator=(const UnreadCharge&) = delete;
  ~UnreadCharge() { reset(); }

  // False, without an effect, if too much waits. Called once, and again after reset().
  bool begin(hawser::detail::ReceiveAccount& account, std::size_t bytes) noexcept {
    if (!account.begin_unread(bytes)) return false;
    account_ = &account;
    bytes_ = bytes;
    return true;
  }
  void reset() noexcept {
    if (account_ != nullptr) account_->end_unread(bytes_);
    account_ = nullptr;
  }

 private:
  hawser::detail::ReceiveAccount* account_ = nullptr;  // Null: nothing is counted.
  std::size_t bytes_ = 0;
};

}  // namespace hawser::transport
