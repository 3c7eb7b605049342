#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hawser::transport::ucx {

// Flow control of both directions. The unit is bytes of packets, plus ucx_cost_overhead for each packet. The receiver
// counts a packet as received when it has arrived, and as taken when its last message has been delivered. The class
// does no I/O.
class UcxCredits {
 public:
  // ---- Direction to the peer ----

  // Returns whether the peer's window has room for another packet.
  bool may_send(std::size_t window_bytes) const noexcept { return sent_ - granted_ < window_bytes; }
  void send(std::size_t cost) noexcept { sent_ += cost; }
  // Sent, and not taken by the peer as far as it has announced.
  std::uint64_t in_flight() const noexcept { return sent_ - granted_; }
  // The peer announces how much it has taken since the connection began. Returns false if that is more than was sent.
  [[nodiscard]] bool grant(std::uint64_t taken) noexcept {
    if (taken > sent_) return false;
    granted_ = std::max(granted_, taken);
    return true;
  }

  // ---- Direction from the peer ----

  // Counts a packet that has arrived. Returns false if the peer exceeded the window that it was granted.
  [[nodiscard]] bool receive(std::size_t cost, std::size_t window_bytes) noexcept {
    const bool room = received_ - announced_ < window_bytes;
    received_ += cost;
    return room;
  }
  void take(std::size_t cost) noexcept { taken_ += cost; }
  // Received, and not delivered yet.
  std::uint64_t held() const noexcept { return received_ - taken_; }
  // Returns true when a quarter of the window or more has been taken and not announced yet.
  bool announcement_due(std::size_t window_bytes) const noexcept { return taken_ - announced_ >= window_bytes / 4; }
  // Returns the total to announce in the next active message, and records it as announced.
  std::uint64_t announce() noexcept { return announced_ = taken_; }

 private:
  std::uint64_t sent_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t announced_ = 0;
};

}  // namespace hawser::transport::ucx
