#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/little_endian.h"
#include "hawser/bytes.h"

namespace hawser::transport {

// What travels in UCX's active messages (docs/transports/ucx.md). Everything that is read here comes from the peer.

// The header that each active message has beside its data.
struct UcxHeader {
  static constexpr std::size_t bytes = 24;

  enum class Kind : std::uint8_t {
    packed = 1,   // Data: entries one after another. `index` is its place in the order.
    payload = 2,  // Data: the payload of an entry that announced one. `index` counts payloads.
    credit = 3,   // No data: only what the header says.
    hello = 4,    // No data: the first sign over UCX, from both sides.
    fin = 5,      // No data: nothing follows. `index` as with `packed`.
  };

  std::uint64_t token = 0;  // The receiver's name for the connection.
  std::uint64_t taken = 0;  // What the sender of this has taken of what came so far: the receiver's credit.
  std::uint32_t index = 0;
  Kind kind = Kind::packed;

  void store(std::byte* to) const noexcept {
    store_le(to, token);
    store_le(to + 8, taken);
    store_le(to + 16, index);
    store_le(to + 20, static_cast<std::uint32_t>(kind));
  }
  // Nothing if it is not well-formed.
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

// One message of a packed one: u32 bytes of the head, u32 bytes of the payload, the head, and the payload unless it
// comes by itself. Entries begin at multiples of 8.
struct UcxEntry {
  static constexpr std::size_t prefix_bytes = 8;
  static constexpr std::size_t alignment = 8;
  static constexpr std::uint32_t apart = std::uint32_t{1} << 31;  // Of the payload's bytes: it comes by itself.

  Bytes head;
  Bytes payload;  // In place.
  std::size_t payload_bytes = 0;
  bool payload_apart = false;
  std::size_t next = 0;  // Where the next entry begins; the data's size or more at the end.

  static constexpr std::size_t padded(std::size_t bytes) noexcept { return (bytes + alignment - 1) & ~(alignment - 1); }

  // The entry at `at`, a multiple of 8 below the data's size. Nothing if it is not well-formed.
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

// What a packed message or an end costs of the window, so that empty ones are bounded too.
inline constexpr std::size_t ucx_cost_overhead = 64;

}  // namespace hawser::transport
