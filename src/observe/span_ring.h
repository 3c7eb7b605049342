#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "hawser/tracing.h"

namespace hawser::observe {

// The latest spans of one thread. That thread writes; any thread reads. A reader that meets a slot which is being
// written, or was replaced, does not get it. No lock, no wait on either side.
class SpanRing {
 public:
  explicit SpanRing(std::size_t slots) : mask_(slots - 1), slots_(std::make_unique<Slot[]>(slots)) {}

  // The writer's thread only.
  void write(const Span& span) noexcept;
  // Number of spans that were written.
  std::uint64_t written() const noexcept { return written_.load(std::memory_order_acquire); }
  // The number of the oldest span that may still be there.
  std::uint64_t oldest() const noexcept {
    const std::uint64_t end = written();
    return end > mask_ + 1 ? end - mask_ - 1 : 0;
  }
  // The span of that number. Empty if it was replaced.
  std::optional<Span> read(std::uint64_t number) const;

 private:
  struct Packed {
    std::array<std::uint8_t, 16> trace_id;
    std::array<std::uint8_t, 8> span_id;
    std::array<std::uint8_t, 8> parent_id;
    std::int64_t begin_ns;
    std::int64_t duration_ns;
    std::uint64_t request_bytes;
    std::uint64_t reply_bytes;
    std::uint32_t attempts;
    std::uint8_t kind;
    std::uint8_t reason;
    std::uint8_t failed;
    std::uint8_t code;
    char method[Span::method_bytes_max + 1];
    char peer[Span::peer_bytes_max + 1];
    char protocol[Span::protocol_bytes_max + 1];
    char error[Span::error_bytes_max + 1];
  };
  static constexpr std::size_t words = sizeof(Packed) / sizeof(std::uint64_t);
  static_assert(words * sizeof(std::uint64_t) == sizeof(Packed));

  struct Slot {
    std::atomic<std::uint64_t> version{0};  // 2 * (number + 1) once span `number` is complete; odd while it is written.
    std::array<std::atomic<std::uint64_t>, words> data{};
  };
  static_assert(sizeof(Slot) <= 376);

  const std::uint64_t mask_;
  const std::unique_ptr<Slot[]> slots_;
  std::atomic<std::uint64_t> written_{0};
};

}  // namespace hawser::observe
