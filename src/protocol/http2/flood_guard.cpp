#include "protocol/http2/flood_guard.h"

#include <algorithm>
#include <cstring>

namespace hawser::protocol::http2 {
namespace {

// Kinds of frames: RFC 9113, section 6.
constexpr std::uint8_t data_frame = 0;
constexpr std::uint8_t headers_frame = 1;
constexpr std::uint8_t reset_frame = 3;
constexpr std::uint8_t settings_frame = 4;
constexpr std::uint8_t ping_frame = 6;
constexpr std::uint8_t window_update_frame = 8;
constexpr std::uint8_t continuation_frame = 9;
constexpr std::uint8_t unknown_frame = 0xFF;
constexpr std::uint8_t end_stream_flag = 1;
constexpr std::uint8_t padded_flag = 8;

constexpr std::uint32_t ended = 1;

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
  const std::size_t given = bytes.size();
  disguised_ = false;
  while (!bytes.empty() && !disguised_) {
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
  counted_ = given - bytes.size();
  return true;
}

std::uint32_t FloodGuard::stream_id() const noexcept {
  return ((std::uint32_t{header_[5]} << 24) | (std::uint32_t{header_[6]} << 16) | (std::uint32_t{header_[7]} << 8) |
          header_[8]) &
         0x7FFF'FFFF;
}

bool FloodGuard::violate(std::uint32_t code, std::string_view why) noexcept {
  code_ = code;
  reason_ = why;
  return false;
}

// RFC 9113, sections 5.1 and 5.1.1. Frames that a client must not send at all are left to nghttp2.
bool FloodGuard::on_request_frame(bool headers, bool end) noexcept {
  const std::uint32_t id = stream_id();
  if (!server_ || id % 2 == 0) return true;
  std::uint32_t& entry = streams_[id / 2 % remembered_streams];
  if (headers && id > highest_id_) {
    highest_id_ = id;
    entry = 2 * id;
  } else if (entry / 2 != id) {
    if (id > highest_id_ || highest_id_ - id >= 2 * remembered_streams) return true;  // Idle, or forgotten.
    return !headers ||
           violate(protocol_error_code, "HEADERS open a stream with a lower id than the stream before: use ids once");
  } else if ((entry & ended) != 0) {
    return violate(stream_closed_code, headers ? "HEADERS on a stream that the client has ended"
                                               : "DATA on a stream that the client has ended");
  }
  if (end) entry |= ended;
  return true;
}

// A reset of an idle stream is a connection error for nghttp2 (RFC 9113, section 5.1). But clients of grpcio send one
// for a call that they cancel before its HEADERS have left, and would lose all calls of the connection. HEADERS of
// lower streams may follow. A client that has opened no stream has nothing to lose.
void FloodGuard::on_reset() noexcept {
  if (server_ && highest_id_ != 0 && stream_id() > highest_id_ && stream_id() % 2 != 0) {
    header_[3] = unknown_frame;
    disguised_ = true;
    return;
  }
  std::uint32_t& entry = streams_[stream_id() / 2 % remembered_streams];
  if (server_ && entry / 2 == stream_id()) entry |= ended;
}

// HEADERS that open a stream are bounded by the streams that may be open. Others are trailers, responses, and blocks on
// streams that nghttp2 has forgotten, which it decodes and ignores.
bool FloodGuard::on_headers(bool end) noexcept {
  const std::uint32_t highest = highest_id_;
  if (!on_request_frame(true, end)) return false;
  return highest_id_ != highest || take(headers_cost(skip_), "HEADERS frames that open no stream");
}

bool FloodGuard::on_frame() noexcept {
  const bool end = (header_[4] & end_stream_flag) != 0;
  switch (header_[3]) {
    case data_frame:
      if (!on_request_frame(false, end)) return false;
      if (end || skip_ > ((header_[4] & padded_flag) != 0 ? padding_bytes_max : 0)) return true;
      return take(other_cost, "DATA frames without bytes");
    case headers_frame: return on_headers(end);
    case reset_frame: on_reset(); return take(other_cost, "RST_STREAM frames");
    case settings_frame: return take(settings_cost, "SETTINGS frames");
    case ping_frame: return take(ping_cost, "PING frames");
    case window_update_frame:
      if (updates_ == 0) return take(other_cost, "WINDOW_UPDATE frames");
      --updates_;
      return true;
    case continuation_frame: return take(continuation_cost, "CONTINUATION frames");
    default: return take(other_cost, "PRIORITY frames or frames of an unknown kind");
  }
}

}  // namespace hawser::protocol::http2
