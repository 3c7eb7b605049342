#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string_view>

#include "base/little_endian.h"
#include "hawser/bytes.h"

// What a packet (one send) carries: records, each 8-byte aligned, and behind them the ids of rendezvous transfers that
// are done. docs/transports/rdma.md, "Packets". No I/O; nothing received is trusted.
namespace hawser::transport::rdma {

constexpr std::size_t align_up(std::size_t bytes, std::size_t to = 8) noexcept { return (bytes + to - 1) & ~(to - 1); }

enum class RecordKind : std::uint8_t {
  message = 1,   // A whole one: head, padding to 8, payload.
  begin = 2,     // The beginning of one that goes on in fragments: bytes of head and payload, without padding between.
  fragment = 3,  // More of the bytes.
  rendezvous = 4,  // Head, padding to 8, then where the receiver reads the payload.
};

// u8 kind, three zeros, u32 head_bytes, u32 payload_bytes, u32 carried_bytes.
struct RecordHeader {
  static constexpr std::size_t bytes = 16;
  RecordKind kind = RecordKind::message;
  std::uint32_t head_bytes = 0;     // Of the whole message; 0 in a fragment.
  std::uint32_t payload_bytes = 0;  // Likewise.
  // message: head and payload. begin, fragment: the message's bytes in this record. rendezvous: bytes of the table.
  std::uint32_t carried_bytes = 0;
};

inline void write_header(std::byte* to, const RecordHeader& header) noexcept {
  store_le(to, static_cast<std::uint32_t>(header.kind));
  store_le(to + 4, header.head_bytes);
  store_le(to + 8, header.payload_bytes);
  store_le(to + 12, header.carried_bytes);
}

// Bytes of a whole message as a record.
constexpr std::size_t message_record_bytes(std::size_t head, std::size_t payload) noexcept {
  return RecordHeader::bytes + align_up(head) + align_up(payload);
}

// A record as it lies in a packet.
struct Record {
  RecordHeader header;
  Bytes head;     // message, rendezvous.
  Bytes carried;  // message: the payload. begin, fragment: the bytes. rendezvous: the table.
  std::size_t size = 0;
};

// The record at the front of `rest`, which is not empty. The error says how the bytes are wrong.
std::expected<Record, std::string_view> parse_record(Bytes rest) noexcept;

// ---- The table of a rendezvous: u32 transfer id, u32 pieces, the pieces, then the bytes of the literal ones, each
//   padded to 8.

// u64 address, u32 key, u32 bytes. With address 0 the bytes lie behind the table.
struct RemoteBuffer {
  static constexpr std::size_t bytes = 16;
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t size = 0;
};
constexpr std::size_t table_head_bytes = 8;
constexpr std::size_t table_pieces_max = 64;

struct RendezvousTable {
  std::uint32_t transfer = 0;
  std::uint32_t pieces = 0;
  Bytes entries;
  Bytes literals;

  RemoteBuffer piece(std::size_t index) const noexcept {
    const std::byte* const at = entries.data() + index * RemoteBuffer::bytes;
    return {load_le<std::uint64_t>(at), load_le<std::uint32_t>(at + 8), load_le<std::uint32_t>(at + 12)};
  }
};
inline void write_piece(std::byte* to, const RemoteBuffer& piece) noexcept {
  store_le(to, piece.address);
  store_le(to + 8, piece.key);
  store_le(to + 12, piece.size);
}
// Checks that the pieces make up `payload_bytes` and the literals are there.
std::expected<RendezvousTable, std::string_view> parse_table(Bytes table, std::uint32_t payload_bytes) noexcept;

// ---- The immediate of every packet

struct Immediate {
  static constexpr std::uint32_t grant_max = 0x1fff;
  static constexpr std::uint32_t done_max = 0x3ff;
  std::uint32_t granted = 0;  // Receives that were posted since the last packet.
  std::uint32_t done = 0;     // Transfer ids, each u32, at the packet's end.
  bool fin = false;           // The last packet of this side.

  constexpr std::uint32_t encode() const noexcept { return granted | done << 13 | (fin ? 1U << 31 : 0U); }
  static constexpr Immediate decode(std::uint32_t value) noexcept {
    return {value & grant_max, value >> 13 & done_max, (value >> 31) != 0};
  }
};

}  // namespace hawser::transport::rdma
