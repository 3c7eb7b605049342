#pragma once

#include <algorithm>
#include <cstdint>

namespace hawser::transport::rdma {

// Counts receives, so that a packet is only sent when the peer has a receive posted for it. Each packet carries a
// grant: the number of receives that its sender has posted again. No I/O.
//
// The last `reserved` credits are kept for control packets: grants, and reports that free the peer's memory. Data does
// not use them, so that each side can always grant more credits:
//  - Every packet carries the whole outstanding grant, so a side that receives a grant can always answer.
//  - Receives are granted when half of the queue is owed, or as soon as the peer has only its reserve left.
//  - Receives used up by bare grants count less: one alone does not cause a grant. Otherwise both sides would grant
//    each other forever.
//  - A receiver must not hold more chunks than held_max(), so that a peer in need is always owed more than one bare
//    grant.
class RdmaCredits {
 public:
  static constexpr std::uint32_t reserved = 2;
  // Number of chunks that a receiver may keep from being posted.
  static constexpr std::uint32_t held_max(std::uint32_t receives) noexcept {
    return std::min(receives / 2, receives - (reserved + 2));
  }

  // Number of receives that both sides have posted at the start; at least 4.
  RdmaCredits(std::uint32_t peer_receives, std::uint32_t own_receives) noexcept
      : peer_receives_(peer_receives), own_receives_(own_receives), available_(peer_receives), usable_(own_receives) {}

  // ---- Sending
  bool may_send_data() const noexcept { return available_ > reserved; }
  // The last credit is reserved for a packet that grants. If both sides used their last credits for other packets at
  // the same time, neither could continue.
  bool may_send_control() const noexcept { return available_ > 1 || (available_ == 1 && owed_ > 0); }
  std::uint32_t available() const noexcept { return available_; }
  std::uint32_t peer_receives() const noexcept { return peer_receives_; }
  std::uint32_t own_receives() const noexcept { return own_receives_; }

  // Counts a packet that is being sent. Returns the grant that it carries.
  std::uint32_t sending(std::uint32_t grant_max) noexcept {
    --available_;
    const std::uint32_t granted = std::min(owed_, grant_max);
    owed_ -= granted;
    owed_weighty_ = std::min(owed_weighty_, owed_);  // Receives that bare grants used are granted first.
    usable_ += granted;
    return granted;
  }

  // ---- Receiving
  // Counts a packet that arrived with a grant. False if the peer used or granted more than is possible.
  [[nodiscard]] bool received(std::uint32_t granted) noexcept {
    if (usable_ == 0 || granted > peer_receives_ - available_) return false;
    --usable_;
    available_ += granted;
    return true;
  }
  // Counts a receive that was posted again. `weighty` is false if a bare grant had used it up.
  void posted(bool weighty) noexcept {
    ++owed_;
    if (weighty) ++owed_weighty_;
  }
  // True if a grant should be sent even without anything else to send.
  bool grant_due() const noexcept {
    return owed_weighty_ * 2 >= own_receives_ || (peer_is_short() && (owed_weighty_ > 0 || owed_ > 1));
  }
  // As far as the peer knows, it cannot send data any more.
  bool peer_is_short() const noexcept { return usable_ <= reserved; }
  std::uint32_t usable() const noexcept { return usable_; }
  std::uint32_t owed() const noexcept { return owed_; }

 private:
  const std::uint32_t peer_receives_;
  const std::uint32_t own_receives_;
  std::uint32_t available_;  // Receives that the peer has posted for this side.
  std::uint32_t usable_;     // Receives of this side that the peer knows and, as far as this side knows, has not used.
  std::uint32_t owed_ = 0;   // Posted and not granted yet.
  std::uint32_t owed_weighty_ = 0;  // The part of owed_ that counts towards a grant.
};

}  // namespace hawser::transport::rdma
