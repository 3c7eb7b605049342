#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hawser/bytes.h"

namespace hawser::transport::rdma {

// Payloads that the peer reads from this side's memory. Each holds its blocks, and its owner is notified when the peer
// is done. No I/O.
class Transfers {
 public:
  explicit Transfers(std::size_t max) noexcept : max_(max) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  ~Transfers() {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot].open) finish(slot);
    }
  }

  bool full() const noexcept { return open_ == max_; }
  std::size_t open() const noexcept { return open_; }

  // Bytes of copied payloads whose transfers are open.
  std::size_t copied_bytes() const noexcept { return copied_bytes_; }

  // Takes over a reference to each block. Returns the id.
  std::uint32_t begin(std::span<Block* const> blocks, SendCompletion* owner, std::size_t copied_bytes) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    Transfer& transfer = slots_[slot];
    transfer.blocks.assign(blocks.begin(), blocks.end());
    transfer.owner = owner;
    transfer.copied_bytes = copied_bytes;
    copied_bytes_ += copied_bytes;
    transfer.open = true;
    ++open_;
    return transfer.generation << slot_bits | slot;
  }
  // False if no such transfer is open. May call the owner, which may begin another transfer.
  [[nodiscard]] bool end(std::uint32_t id) {
    const std::uint32_t slot = id & ((1U << slot_bits) - 1);
    if (slot >= slots_.size() || !slots_[slot].open || slots_[slot].generation != id >> slot_bits) return false;
    finish(slot);
    return true;
  }
  // `owner` is not notified any more. The blocks are held until the peer is done.
  void forget(const SendCompletion& owner) noexcept {
    for (Transfer& transfer : slots_) {
      if (transfer.owner == &owner) transfer.owner = nullptr;
    }
  }
  // Notifies all owners. The blocks are still held, because the peer may be reading.
  void release_owners() noexcept {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (SendCompletion* const owner = std::exchange(slots_[slot].owner, nullptr)) owner->on_send_complete();
    }
  }

 private:
  static constexpr unsigned slot_bits = 10;
  struct Transfer {
    std::vector<Block*> blocks;  // Keeps its capacity.
    SendCompletion* owner = nullptr;
    std::size_t copied_bytes = 0;
    std::uint32_t generation = 0;  // 22 bits are used.
    bool open = false;
  };

  void finish(std::uint32_t slot) noexcept {
    Transfer& transfer = slots_[slot];
    for (Block* block : transfer.blocks) block->release();
    transfer.blocks.clear();
    copied_bytes_ -= transfer.copied_bytes;
    SendCompletion* const owner = std::exchange(transfer.owner, nullptr);
    transfer.open = false;
    transfer.generation = (transfer.generation + 1) & ((1U << (32 - slot_bits)) - 1);
    free_.push_back(slot);
    --open_;
    if (owner != nullptr) owner->on_send_complete();
  }

  const std::size_t max_;
  std::size_t open_ = 0;
  std::size_t copied_bytes_ = 0;
  std::vector<Transfer> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace hawser::transport::rdma
