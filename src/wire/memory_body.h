#pragma once

#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"
#include "hawser/bytes.h"
#include "wire/frame.h"

// The bodies of MEMORY frames (docs/wire-format.md, "Memory"), without I/O.
namespace hawser::wire {

// Names one exposed region. A number of another region, or of an earlier use of the same slot, names none.
struct RegionId {
  std::uint64_t owner = 0;  // Random number of the client or server that exposes the region.
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  std::uint64_t capability = 0;  // Random; who does not know it cannot access the region.
  friend bool operator==(const RegionId&, const RegionId&) = default;
};
inline constexpr std::size_t region_id_bytes = 24;

// One range of a read or a write.
struct MemoryRange {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  friend bool operator==(const MemoryRange&, const MemoryRange&) = default;
};
inline constexpr std::size_t memory_range_bytes = 12;
// The most ranges of one frame. A receiver refuses more before it looks at any.
inline constexpr std::size_t memory_ranges_max = 1024;
// The most bytes that one read asks for.
inline constexpr std::size_t memory_read_bytes_max = std::size_t{1} << 20;

// The operands of an atomic.
struct AtomicOperands {
  std::uint64_t offset = 0;
  std::uint64_t operand = 0;   // The new value, or what is added.
  std::uint64_t expected = 0;  // compare_and_swap only.
  friend bool operator==(const AtomicOperands&, const AtomicOperands&) = default;
};
inline constexpr std::size_t atomic_operands_bytes = 24;

// The longest body that is served.
inline constexpr std::size_t memory_body_bytes_max = region_id_bytes + memory_ranges_max * memory_range_bytes;
static_assert(memory_ranges_max * memory_range_bytes >= atomic_operands_bytes);

inline std::byte* write_region_id(std::byte* to, const RegionId& id) noexcept {
  store_le(to, id.owner);
  store_le(to + 8, id.slot);
  store_le(to + 12, id.generation);
  store_le(to + 16, id.capability);
  return to + region_id_bytes;
}
inline std::byte* write_memory_range(std::byte* to, const MemoryRange& range) noexcept {
  store_le(to, range.offset);
  store_le(to + 8, range.bytes);
  return to + memory_range_bytes;
}
inline std::byte* write_atomic_operands(std::byte* to, const AtomicOperands& operands) noexcept {
  store_le(to, operands.offset);
  store_le(to + 8, operands.operand);
  store_le(to + 16, operands.expected);
  return to + atomic_operands_bytes;
}

// The body of a MEMORY frame whose length has been checked.
class MemoryBody {
 public:
  // False if the body is malformed, which ends the connection.
  static bool well_formed(std::uint32_t action, Bytes body) noexcept {
    if (body.size() < region_id_bytes) return false;
    const std::size_t rest = body.size() - region_id_bytes;
    if (action > memory_action_max) return true;  // An action of a later version is refused, and is not a violation.
    return atomic(action) ? rest == atomic_operands_bytes : rest != 0 && rest % memory_range_bytes == 0;
  }
  static constexpr bool atomic(std::uint32_t action) noexcept {
    return action == static_cast<std::uint32_t>(MemoryAction::compare_and_swap) ||
           action == static_cast<std::uint32_t>(MemoryAction::fetch_add);
  }

  // `body` must be well-formed.
  explicit MemoryBody(Bytes body) noexcept : body_(body) {}

  RegionId region() const noexcept {
    const std::byte* const at = body_.data();
    return {load_le<std::uint64_t>(at), load_le<std::uint32_t>(at + 8), load_le<std::uint32_t>(at + 12),
            load_le<std::uint64_t>(at + 16)};
  }
  std::size_t ranges() const noexcept { return (body_.size() - region_id_bytes) / memory_range_bytes; }
  MemoryRange range(std::size_t index) const noexcept {
    const std::byte* const at = body_.data() + region_id_bytes + index * memory_range_bytes;
    return {load_le<std::uint64_t>(at), load_le<std::uint32_t>(at + 8)};
  }
  AtomicOperands operands() const noexcept {
    const std::byte* const at = body_.data() + region_id_bytes;
    return {load_le<std::uint64_t>(at), load_le<std::uint64_t>(at + 8), load_le<std::uint64_t>(at + 16)};
  }

 private:
  Bytes body_;
};

}  // namespace hawser::wire
