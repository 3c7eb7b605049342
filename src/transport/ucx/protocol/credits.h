#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hawser::transport::ucx {

// The windows of both directions, in bytes of packets with ucx_cost_overhead for each. A packet is received when it has
// arrived and taken when its last message has been delivered. Without I/O.
class Credits {
 public:
  // ---- What this side sends ----

  // Whether the peer's window has room.
  bool may_send(std::size_t window_bytes) const noexcept { return sent_ - granted_ < window_bytes; }
  void send(std::size_t cost) noexcept { sent_ += cost; }
  // The peer says what it has taken so far; false if it was never sent so much.
  [[nodiscard]] bool grant(std::uint64_t taken) noexcept {
    if (taken > sent_) return false;
    granted_ = std::max(granted_, taken);
    return true;
  }

  // ---- What it receives ----

  // False if the peer had no room in the window that it was granted.
  [[nodiscard]] bool receive(std::size_t cost, std::size_t window_bytes) noexcept {
    const bool room = received_ - announced_ < window_bytes;
    received_ += cost;
    return room;
  }
  void take(std::size_t cost) noexcept { taken_ += cost; }
  // So much was taken since the peer has heard of it that it should hear now.
  bool announcement_due(std::size_t window_bytes) const noexcept { return taken_ - announced_ >= window_bytes / 4; }
  // What the next active message says to have taken.
  std::uint64_t announce() noexcept { return announced_ = taken_; }

 private:
  std::uint64_t sent_ = 0;
  std::uint64_t granted_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t announced_ = 0;
};

}  // namespace hawser::transport::ucx
