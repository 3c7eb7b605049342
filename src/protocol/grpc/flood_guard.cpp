#include "protocol/grpc/flood_guard.h"

#include <algorithm>
#include <cstring>

namespace hawser::protocol::grpc {
namespace {

// Kinds of frames: RFC 9113, section 6.
constexpr std::uint8_t data_frame = 0;
constexpr std::uint8_t headers_frame = 1;
constexpr std::uint8_t reset_frame = 3;
constexpr std::uint8_t settings_frame = 4;
constexpr std::uint8_t ping_frame = 6;
constexpr std::uint8_t window_update_frame = 8;
constexpr std::uint8_t continuation_frame = 9;
constexpr std::uint8_t end_stream_flag = 1;

}  // namespace

bool FloodGuard::receive(Bytes bytes, Time now) noexcept {
  if (!clock_known_) {
    clock_known_ = true;
    refilled_ = now;
  }
  // A whole token at a time, so that no part of one is lost.
  const Duration token_time =
      std::chrono::nanoseconds(1'000'000'000 / std::max<std::int64_t>(limits_.tokens_per_second, 1));
  if (now - refilled_ >= token_time) {
    const std::int64_t gained = (now - refilled_) / token_time;
    refilled_ += gained * token_time;
    give(std::min(gained, limits_.tokens_max));
  }
  while (!bytes.empty()) {
    if (skip_ != 0) {
      const std::size_t part = std::min(skip_, bytes.size());
      skip_ -= part;
      bytes = bytes.subspan(part);
      continue;
    }
    const std::size_t part = std::min(frame_header_bytes - header_bytes_, bytes.size());
    std::memcpy(header_.data() + header_bytes_, bytes.data(), part);
    header_bytes_ += part;
    bytes = bytes.subspan(part);
    if (header_bytes_ < frame_header_bytes) break;
    header_bytes_ = 0;
    skip_ = (std::size_t{header_[0]} << 16) | (std::size_t{header_[1]} << 8) | header_[2];
    if (!on_frame()) return false;
  }
  return true;
}

bool FloodGuard::on_frame() noexcept {
  switch (header_[3]) {
    case data_frame:
      if ((header_[4] & end_stream_flag) != 0 || skip_ >= short_data_bytes) return true;
      return take(other_cost, "DATA frames with few or no bytes");
    case headers_frame: return true;  // Bounded by the calls that may be active.
    case reset_frame: return take(other_cost, "RST_STREAM frames");
    case settings_frame: return take(settings_cost, "SETTINGS frames");
    case ping_frame: return take(ping_cost, "PING frames");
    case window_update_frame: return take(other_cost, "WINDOW_UPDATE frames");
    case continuation_frame: return take(continuation_cost, "CONTINUATION frames");
    default: return take(other_cost, "PRIORITY frames or frames of an unknown kind");
  }
}

}  // namespace hawser::protocol::grpc
