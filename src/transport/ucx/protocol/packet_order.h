#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "transport/ucx/core/ucx_core.h"

namespace hawser::transport::ucx {

// Brings the packets of a peer into the order of their indexes, because several rails reorder active messages. Owns a
// reference to the block of each packet. No I/O.
class PacketOrder {
 public:
  // Most active messages that may arrive before an earlier one.
  static constexpr std::size_t overtaking_max = 4096;

  // A packet in order, and the position up to which it has been read.
  struct Packet {
    const std::byte* data = nullptr;
    std::size_t size = 0;
    Block* block = nullptr;
    bool end = false;  // It is the fin.
    std::size_t at = 0;
  };

  PacketOrder() = default;
  PacketOrder(const PacketOrder&) = delete;
  PacketOrder& operator=(const PacketOrder&) = delete;
  ~PacketOrder() { clear(); }

  // Index of the next packet in order.
  std::uint32_t expected() const noexcept { return expected_; }
  // Takes over the message's reference. Returns false, and takes nothing over, if a packet with this index was added
  // before, or if the index is overtaking_max or more behind the expected one.
  [[nodiscard]] bool add(const UcxTarget::ActiveMessage& message) {
    const std::uint32_t distance = message.header.index - expected_;
    if (distance >= overtaking_max) return false;
    if (distance != 0) return early_.try_emplace(message.header.index, message).second;
    push(message);
    for (auto next = early_.begin(); !early_.empty() && (next = early_.find(expected_)) != early_.end();) {
      push(next->second);
      early_.erase(next);
    }
    return true;
  }

  // True if the next packet in order has not arrived, or every one has been removed.
  bool empty() const noexcept { return in_order_.empty(); }
  Packet& front() noexcept { return in_order_.front(); }
  // Removes the first packet. The caller has taken over its block.
  void pop() noexcept { in_order_.pop_front(); }
  // Releases all packets.
  void clear() noexcept {
    for (auto& [index, message] : early_) drop(message.block);
    early_.clear();
    for (Packet& packet : in_order_) drop(packet.block);
    in_order_.clear();
  }

 private:
  void push(const UcxTarget::ActiveMessage& message) {
    in_order_.push_back({.data = message.data,
                         .size = message.size,
                         .block = message.block,
                         .end = message.header.kind == UcxHeader::Kind::fin});
    ++expected_;
  }
  static void drop(Block*& block) noexcept {
    if (block != nullptr) std::exchange(block, nullptr)->release();
  }

  std::map<std::uint32_t, UcxTarget::ActiveMessage> early_;  // Arrived before an earlier one; by index.
  std::deque<Packet> in_order_;
  std::uint32_t expected_ = 0;
};

}  // namespace hawser::transport::ucx
