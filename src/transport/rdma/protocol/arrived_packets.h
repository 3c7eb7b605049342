#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

#include "hawser/bytes.h"
#include "transport/rdma/protocol/queue.h"
#include "transport/rdma/protocol/receive_ring.h"

namespace hawser::transport::rdma {

// The packets that have arrived and whose records have not all been delivered, and the position up to which their
// records have been searched for payloads that this side must read. No I/O.
class ArrivedPackets {
 public:
  struct Packet {
    ReceiveChunk* chunk = nullptr;
    std::size_t begin = 0;  // Offset of the first record that was not delivered.
    std::size_t end = 0;
    Bytes rest() const noexcept { return {chunk->bytes() + begin, end - begin}; }
  };

  bool empty() const noexcept { return packets_.empty(); }
  void push(const Packet& packet) { packets_.push(packet); }
  Packet& front() noexcept { return packets_.front(); }
  Packet pop() noexcept {
    ++first_;
    return packets_.pop();
  }

  // True if the first record of the front has been searched.
  bool front_is_searched() noexcept { return searched_ > Position{first_, front().begin}; }
  // The first record of the front, of so many bytes, has been searched when its turn came.
  void front_searched(std::size_t record_bytes) noexcept { searched_ = {first_, front().begin + record_bytes}; }
  // Returns the bytes of a packet that begin with the first record that was not searched. Empty if there is none.
  Bytes unsearched() noexcept {
    const Position here{first_, empty() ? 0 : front().begin};
    if (searched_ < here) searched_ = here;
    for (; searched_.packet < first_ + packets_.size(); searched_ = {searched_.packet + 1, 0}) {
      const Packet& packet = packets_[searched_.packet - first_];
      if (searched_.offset < packet.end)
        return {packet.chunk->bytes() + searched_.offset, packet.end - searched_.offset};
    }
    return {};
  }
  // The record of so many bytes at the front of unsearched() has been searched.
  void searched(std::size_t record_bytes) noexcept { searched_.offset += record_bytes; }

 private:
  // The number of a packet, and the offset of a record in it.
  struct Position {
    std::uint64_t packet = 0;
    std::size_t offset = 0;
    auto operator<=>(const Position&) const = default;
  };

  Queue<Packet> packets_;
  std::uint64_t first_ = 0;  // Number of the first packet.
  Position searched_;
};

}  // namespace hawser::transport::rdma
