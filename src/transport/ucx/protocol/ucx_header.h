#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/little_endian.h"
#include "hawser/bytes.h"

namespace hawser::transport {

// Format of the UCX active messages (docs/transports/ucx.md). Everything that is read here comes from the peer and must
// be checked.

// The header that each active message has beside its data.
struct UcxHeader {
  static constexpr std::size_t bytes = 24;

  enum class Kind : std::uint8_t {
    packed = 1,   // The data is a sequence of entries. `index` counts packets.
    payload = 2,  // The data is the payload of an entry that announced it. `index` counts payloads.
    credit = 3,   // No data: carries only the header's credit.
    hello = 4,    // No data: the first active message of each side.
    fin = 5,      // No data: nothing follows. `index` counts packets, as for `packed`.
  };

  std::uint64_t token = 0;  // Identifies the connection at the receiver of this header.
  std::uint64_t taken = 0;  // Total that the sender of this header has taken: credit for its receiver.
  std::uint32_t index = 0;
  Kind kind = Kind::packed;

  void store(std::byte* to) const noexcept {
    store_le(to, token);
    store_le(to + 8, taken);
    store_le(to + 16, index);
    store_le(to + 20, static_cast<std::uint32_t>(kind));
  }
  // Returns std::nullopt if the header is not well-formed.
  static std::optional<UcxHeader> load(Bytes from) noexcept {
    if (from.size() != bytes) return std::nullopt;
    const auto kind = load_le<std::uint32_t>(from.data() + 20);
    if (kind < static_cast<std::uint32_t>(Kind::packed) || kind > static_cast<std::uint32_t>(Kind::fin))
      return std::nullopt;
    return UcxHeader{.token = load_le<std::uint64_t>(from.data()),
                     .taken = load_le<std::uint64_t>(from.data() + 8),
                     .index = load_le<std::uint32_t>(from.data() + 16),
                     .kind = static_cast<Kind>(kind)};
  }
};

// One message within a packed active message. Format: u32 length of the head, u32 length of the payload, the head, and
// the payload unless it has an active message of its own. Entries begin at multiples of 8.
struct UcxEntry {
  static constexpr std::size_t prefix_bytes = 8;
  static constexpr std::size_t alignment = 8;
  static constexpr std::uint32_t apart = std::uint32_t{1} << 31;  // In the payload's length.

  Bytes head;
  Bytes payload;  // Within the packet; empty if payload_apart.
  std::size_t payload_bytes = 0;
  bool payload_apart = false;  // The payload has an active message of its own.
  std::size_t next = 0;        // Offset of the next entry; at least the size of the data after the last entry.

  static constexpr std::size_t padded(std::size_t bytes) noexcept { return (bytes + alignment - 1) & ~(alignment - 1); }

  // Reads the entry at offset `at`, a multiple of 8 below the size of the data. Returns std::nullopt if the entry is
  // not well-formed.
  static std::optional<UcxEntry> load(Bytes data, std::size_t at) noexcept {
    const Bytes rest = data.subspan(at);
    if (rest.size() < prefix_bytes) return std::nullopt;
    const std::size_t head_bytes = load_le<std::uint32_t>(rest.data());
    const auto announced = load_le<std::uint32_t>(rest.data() + 4);
    UcxEntry entry{.payload_bytes = announced & ~apart, .payload_apart = (announced & apart) != 0};
    const std::size_t within = entry.payload_apart ? 0 : entry.payload_bytes;
    if (head_bytes > rest.size() - prefix_bytes || within > rest.size() - prefix_bytes - head_bytes)
      return std::nullopt;
    if (entry.payload_apart && entry.payload_bytes == 0) return std::nullopt;
    entry.head = rest.subspan(prefix_bytes, head_bytes);
    entry.payload = rest.subspan(prefix_bytes + head_bytes, within);
    entry.next = at + padded(prefix_bytes + head_bytes + within);
    return entry;
  }
};

// Bytes of the window that each packed message or fin costs besides its data, so that the number of empty ones is
// bounded too.
inline constexpr std::size_t ucx_cost_overhead = 64;

}  // namespace hawser::transport
