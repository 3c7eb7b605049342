#include "observe/span_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

namespace hawser::observe {
namespace {

template <std::size_t size>
void put(char (&to)[size], std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), bytes);
  std::memset(to + bytes, 0, size - bytes);
}

template <std::size_t size>
std::string text_of(const char (&from)[size]) {
  return std::string(from, ::strnlen(from, size));
}

}  // namespace

void SpanRing::write(const Span& span) noexcept {
  Packed packed;
  packed.trace_id = span.trace_id;
  packed.span_id = span.span_id;
  packed.parent_id = span.parent_id;
  packed.begin_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(span.begin.time_since_epoch()).count();
  packed.duration_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(span.duration).count();
  packed.request_bytes = span.request_bytes;
  packed.reply_bytes = span.reply_bytes;
  packed.attempts = span.attempts;
  packed.kind = static_cast<std::uint8_t>(span.kind);
  packed.reason = static_cast<std::uint8_t>(span.reason);
  packed.failed = span.failed ? 1 : 0;
  packed.code = static_cast<std::uint8_t>(span.code);
  put(packed.method, span.method);
  put(packed.peer, span.peer);
  put(packed.protocol, span.protocol);
  put(packed.error, span.error);
  const auto data = std::bit_cast<std::array<std::uint64_t, words>>(packed);

  const std::uint64_t number = written_.load(std::memory_order_relaxed);
  Slot& slot = slots_[number & mask_];
  slot.version.store(2 * number + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (std::size_t i = 0; i < words; ++i) slot.data[i].store(data[i], std::memory_order_relaxed);
  slot.version.store(2 * number + 2, std::memory_order_release);
  written_.store(number + 1, std::memory_order_release);
}

std::optional<Span> SpanRing::read(std::uint64_t number) const {
  const Slot& slot = slots_[number & mask_];
  const std::uint64_t complete = 2 * number + 2;
  if (slot.version.load(std::memory_order_acquire) != complete) return std::nullopt;
  std::array<std::uint64_t, words> data;
  for (std::size_t i = 0; i < words; ++i) data[i] = slot.data[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (slot.version.load(std::memory_order_relaxed) != complete) return std::nullopt;
  const auto packed = std::bit_cast<Packed>(data);

  Span span;
  span.kind = static_cast<Span::Kind>(packed.kind);
  span.reason = static_cast<Span::Reason>(packed.reason);
  span.trace_id = packed.trace_id;
  span.span_id = packed.span_id;
  span.parent_id = packed.parent_id;
  span.begin = std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::nanoseconds(packed.begin_ns)));
  span.duration = std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(packed.duration_ns));
  span.request_bytes = packed.request_bytes;
  span.reply_bytes = packed.reply_bytes;
  span.attempts = packed.attempts;
  span.failed = packed.failed != 0;
  span.code = static_cast<ErrorCode>(packed.code);
  span.method = text_of(packed.method);
  span.peer = text_of(packed.peer);
  span.protocol = text_of(packed.protocol);
  span.error = text_of(packed.error);
  return span;
}

}  // namespace hawser::observe
