#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "table/slot_table.h"

namespace hawser::transport::rdma {

// Payloads that the peer reads from this side's memory. Each holds its blocks, and its owner is notified when the peer
// is done. No I/O.
class Transfers {
 public:
  explicit Transfers(std::size_t max) noexcept : transfers_(max) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  ~Transfers() {
    for (std::size_t slot = 0; slot < transfers_.slots(); ++slot) {
      if (transfers_.at(slot) != nullptr) finish(slot);
    }
  }

  bool full() const noexcept { return transfers_.full(); }
  std::size_t open() const noexcept { return transfers_.size(); }

  // Bytes of copied payloads whose transfers are open.
  std::size_t copied_bytes() const noexcept { return copied_bytes_; }

  // Takes over a reference to each block. Returns the id.
  std::uint32_t begin(std::span<Block* const> blocks, SendCompletion* owner, std::size_t copied_bytes) {
    const auto added = transfers_.add();
    added.value.blocks.assign(blocks.begin(), blocks.end());
    added.value.owner = owner;
    added.value.copied_bytes = copied_bytes;
    copied_bytes_ += copied_bytes;
    return added.generation << slot_bits | added.index;
  }
  // False if no such transfer is open. May call the owner, which may begin another transfer.
  [[nodiscard]] bool end(std::uint32_t id) {
    const std::uint32_t slot = id & ((1U << slot_bits) - 1);
    if (transfers_.find(slot, id >> slot_bits) == nullptr) return false;
    finish(slot);
    return true;
  }
  // `owner` is not notified any more. The blocks are held until the peer is done.
  void forget(const SendCompletion& owner) noexcept {
    transfers_.each([&](std::size_t, Transfer& transfer) {
      if (transfer.owner == &owner) transfer.owner = nullptr;
    });
  }
  // Notifies all owners. The blocks are still held, because the peer may be reading.
  void release_owners() noexcept {
    for (std::size_t slot = 0; slot < transfers_.slots(); ++slot) {  // An owner may begin another transfer.
      if (SendCompletion* const owner = std::exchange(transfers_[slot].owner, nullptr)) owner->on_send_complete();
    }
  }

 private:
  static constexpr unsigned slot_bits = 10;
  struct Transfer {
    std::vector<Block*> blocks;  // Keeps its capacity.
    SendCompletion* owner = nullptr;
    std::size_t copied_bytes = 0;
  };

  void finish(std::size_t slot) noexcept {
    Transfer& transfer = transfers_[slot];
    for (Block* block : transfer.blocks) block->release();
    transfer.blocks.clear();
    copied_bytes_ -= transfer.copied_bytes;
    SendCompletion* const owner = std::exchange(transfer.owner, nullptr);
    transfers_.free_keeping(slot);
    if (owner != nullptr) owner->on_send_complete();
  }

  table::SlotTable<Transfer, 32 - slot_bits> transfers_;
  std::size_t copied_bytes_ = 0;
};

}  // namespace hawser::transport::rdma
