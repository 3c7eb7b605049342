#pragma once

#include <algorithm>
#include <cstdint>

namespace hawser::transport::rdma {

// Counts receives, so that no packet is ever sent for which the peer has none posted. Each packet tells how many
// receives its sender has posted anew (a grant). Without I/O.
//
// The last `reserved` credits are for control: grants and what frees the peer's memory. Data leaves them, so that
// either side can always tell the other that it goes on:
//  - Every packet carries all that is owed, so whoever gets one that grants can answer.
//  - Receives are granted again once half the queue is owed, or as soon as the peer is down to its reserve.
//  - What bare grants used counts less: one alone asks for no grant, else both sides would grant each other for ever.
//  - A receiver must not keep more chunks than held_max(), so that what is owed to a peer in need is never one bare
//    grant.
class Credits {
 public:
  static constexpr std::uint32_t reserved = 2;
  // How many of its chunks a receiver may keep from being posted.
  static constexpr std::uint32_t held_max(std::uint32_t receives) noexcept {
    return std::min(receives / 2, receives - (reserved + 2));
  }

  // How many receives both sides have posted at the start; at least 4.
  Credits(std::uint32_t peer_receives, std::uint32_t own_receives) noexcept
      : peer_receives_(peer_receives), own_receives_(own_receives), available_(peer_receives), usable_(own_receives) {}

  // ---- Sending
  bool may_send_data() const noexcept { return available_ > reserved; }
  // The last credit is for a packet that grants: if both sides spent theirs on others at once, neither could go on.
  bool may_send_control() const noexcept { return available_ > 1 || (available_ == 1 && owed_ > 0); }
  std::uint32_t available() const noexcept { return available_; }

  // A packet is being sent. Gives the grant that it carries.
  std::uint32_t sending(std::uint32_t grant_max) noexcept {
    --available_;
    const std::uint32_t granted = std::min(owed_, grant_max);
    owed_ -= granted;
    owed_weighty_ = std::min(owed_weighty_, owed_);  // The bare ones first.
    usable_ += granted;
    return granted;
  }

  // ---- Receiving
  // A packet came with a grant; false if the peer used or granted more than there can be.
  [[nodiscard]] bool received(std::uint32_t granted) noexcept {
    if (usable_ == 0 || granted > peer_receives_ - available_) return false;
    --usable_;
    available_ += granted;
    return true;
  }
  // A receive was posted again; `weighty` unless a bare grant had used it.
  void posted(bool weighty) noexcept {
    ++owed_;
    if (weighty) ++owed_weighty_;
  }
  // Whether a grant should go out even without anything to send.
  bool grant_due() const noexcept {
    return owed_weighty_ * 2 >= own_receives_ || (peer_is_short() && (owed_weighty_ > 0 || owed_ > 1));
  }
  // The peer can't send data any more, for all it knows.
  bool peer_is_short() const noexcept { return usable_ <= reserved; }
  std::uint32_t usable() const noexcept { return usable_; }
  std::uint32_t owed() const noexcept { return owed_; }

 private:
  const std::uint32_t peer_receives_;
  const std::uint32_t own_receives_;
  std::uint32_t available_;         // Receives that the peer has posted for us.
  std::uint32_t usable_;            // Receives of ours that the peer knows of and has not used, for all we know.
  std::uint32_t owed_ = 0;          // Posted, and not granted yet.
  std::uint32_t owed_weighty_ = 0;  // Of these, such as count towards a grant.
};

}  // namespace hawser::transport::rdma
