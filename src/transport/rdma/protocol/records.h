#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string_view>

#include "base/little_endian.h"
#include "hawser/bytes.h"

// Contents of a packet (one send): records, each 8-byte aligned, followed by the ids of completed rendezvous transfers.
// docs/transports/rdma.md, "Packets". No I/O; nothing received is trusted.
namespace hawser::transport::rdma {

constexpr std::size_t align_up(std::size_t bytes, std::size_t to = 8) noexcept { return (bytes + to - 1) & ~(to - 1); }

enum class RdmaRecordKind : std::uint8_t {
  message = 1,  // A whole message: head, padding to 8, payload.
  // The first part of a message that continues in fragments: bytes of head and payload, without padding between them.
  begin = 2,
  fragment = 3,    // The next part of the bytes.
  rendezvous = 4,  // Head, padding to 8, then the table of the memory from which the receiver reads the payload.
};

// Layout: u8 kind, three zeros, u32 head_bytes, u32 payload_bytes, u32 carried_bytes.
struct RecordHeader {
  static constexpr std::size_t bytes = 16;
  RdmaRecordKind kind = RdmaRecordKind::message;
  std::uint32_t head_bytes = 0;     // Size for the whole message; 0 in a fragment.
  std::uint32_t payload_bytes = 0;  // As head_bytes.
  // message: head and payload. begin, fragment: the message's bytes in this record. rendezvous: bytes of the table.
  std::uint32_t carried_bytes = 0;
};

inline void write_header(std::byte* to, const RecordHeader& header) noexcept {
  store_le(to, static_cast<std::uint32_t>(header.kind));
  store_le(to + 4, header.head_bytes);
  store_le(to + 8, header.payload_bytes);
  store_le(to + 12, header.carried_bytes);
}

// Size of a whole message as a record.
constexpr std::size_t message_record_bytes(std::size_t head, std::size_t payload) noexcept {
  return RecordHeader::bytes + align_up(head) + align_up(payload);
}

// A record in the memory of a packet.
struct RdmaRecord {
  RecordHeader header;
  Bytes head;     // message, rendezvous.
  Bytes carried;  // message: the payload. begin, fragment: the bytes. rendezvous: the table.
  std::size_t size = 0;
};

// Parses the record at the front of `rest`, which is not empty. The error says why the bytes are invalid.
std::expected<RdmaRecord, std::string_view> parse_record(Bytes rest) noexcept;

// ---- The table of a rendezvous: u32 transfer id, u32 pieces, the pieces, then the bytes of the literal ones, each
// padded to 8.

// Layout: u64 address, u32 key, u32 bytes. If the address is 0, the bytes follow the table.
struct RdmaRemoteBuffer {
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

  RdmaRemoteBuffer piece(std::size_t index) const noexcept {
    const std::byte* const at = entries.data() + index * RdmaRemoteBuffer::bytes;
    return {load_le<std::uint64_t>(at), load_le<std::uint32_t>(at + 8), load_le<std::uint32_t>(at + 12)};
  }
};
inline void write_piece(std::byte* to, const RdmaRemoteBuffer& piece) noexcept {
  store_le(to, piece.address);
  store_le(to + 8, piece.key);
  store_le(to + 12, piece.size);
}
// Checks that the pieces add up to `payload_bytes` and that the literals are present.
std::expected<RendezvousTable, std::string_view> parse_table(Bytes table, std::uint32_t payload_bytes) noexcept;

// ---- The immediate of every packet

struct Immediate {
  static constexpr std::uint32_t grant_max = 0x1fff;
  static constexpr std::uint32_t done_max = 0x3ff;
  std::uint32_t granted = 0;  // Receives that were posted since the last packet.
  std::uint32_t done = 0;     // Number of transfer ids, each u32, at the packet's end.
  bool fin = false;           // This is the last packet of its sender.

  constexpr std::uint32_t encode() const noexcept { return granted | done << 13 | (fin ? 1U << 31 : 0U); }
  static constexpr Immediate decode(std::uint32_t value) noexcept {
    return {value & grant_max, value >> 13 & done_max, (value >> 31) != 0};
  }
};

}  // namespace hawser::transport::rdma
