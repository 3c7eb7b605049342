#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <utility>

#include "hawser/bytes.h"
#include "transport/ucx/protocol/ucx_header.h"

namespace hawser::transport::ucx {

// Writes the entries of messages into packets, which lie one behind the other in blocks of memory, and queues the
// packets until they are sent. One packet is open for more entries. No I/O.
class PacketWriter {
 public:
  static constexpr std::size_t block_bytes = std::size_t{64} << 10;

  // The entries of one active message.
  struct Packet {
    Block* block = nullptr;  // The packet owns one reference; null for a fin.
    std::size_t begin = 0;
    std::size_t size = 0;
    std::size_t counted = 0;  // Bytes of its messages, without payloads that have active messages of their own.
  };

  PacketWriter() = default;
  PacketWriter(const PacketWriter&) = delete;
  PacketWriter& operator=(const PacketWriter&) = delete;
  ~PacketWriter() { clear(); }

  // ---- The open packet
  // Index of the open packet.
  std::uint32_t index() const noexcept { return index_; }
  // Returns memory for the head of the next entry, behind its prefix.
  std::byte* reserve(std::size_t head_bytes) {
    make_room(UcxEntry::padded(UcxEntry::prefix_bytes + head_bytes));
    return entry() + UcxEntry::prefix_bytes;
  }
  // Returns memory for the entry of `bytes` bytes whose head was written to the memory of reserve(), and which has the
  // head there. Closes the open packet before the entry if the packet would be longer than `packet_bytes_max`.
  std::byte* extend(std::size_t head_bytes, std::size_t bytes, std::size_t packet_bytes_max) {
    if (block_->size() - used_ < bytes) {
      Block* const filled = block_;
      const std::byte* const head = entry() + UcxEntry::prefix_bytes;
      filled->retain();
      make_room(bytes);
      std::memcpy(entry() + UcxEntry::prefix_bytes, head, head_bytes);
      filled->release();
    } else if (used_ - begin_ + bytes > packet_bytes_max) {
      seal();
    }
    return entry();
  }
  // The entry of extend() has been written. `counted`: see Packet.
  void add(std::size_t bytes, std::size_t counted) noexcept {
    used_ += bytes;
    counted_ += counted;
  }
  // Closes the open packet if it has entries.
  void seal() {
    if (used_ == begin_) return;
    packets_.push_back({.block = block_, .begin = begin_, .size = used_ - begin_, .counted = counted_});
    block_->retain();
    counted_ = 0;
    begin_ = used_;
    ++index_;
  }
  // Closes the open packet and adds a fin.
  void add_fin() {
    seal();
    packets_.push_back({});
    ++index_;
  }

  // ---- Closed packets
  bool empty() const noexcept { return packets_.empty(); }
  const Packet& front() const noexcept { return packets_.front(); }
  // Removes the oldest packet. Its reference belongs to the caller.
  Packet pop() noexcept {
    const Packet packet = packets_.front();
    packets_.pop_front();
    return packet;
  }

  // Releases the memory of all packets. Nothing may be written any more.
  void clear() noexcept {
    for (const Packet& packet : packets_) {
      if (packet.block != nullptr) packet.block->release();
    }
    packets_.clear();
    if (block_ != nullptr) std::exchange(block_, nullptr)->release();
  }

 private:
  std::byte* entry() noexcept { return block_->data() + used_; }
  // Makes room for `bytes` at used_: behind the entries of the open packet, or in a new block.
  void make_room(std::size_t bytes) {
    if (block_ != nullptr && block_->size() - used_ >= bytes) return;
    seal();
    if (block_ != nullptr) std::exchange(block_, nullptr)->release();
    block_ = Block::allocate(std::max(bytes, block_bytes));
    begin_ = used_ = 0;
  }

  Block* block_ = nullptr;  // [begin_, used_) is the open packet.
  std::size_t begin_ = 0;
  std::size_t used_ = 0;
  std::size_t counted_ = 0;
  std::uint32_t index_ = 0;
  std::deque<Packet> packets_;
};

}  // namespace hawser::transport::ucx
