#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/time.h"

namespace hawser::protocol::http2 {

// The cost that frames of an HTTP/2 peer may have without being of use. A frame takes tokens; time and useful work give
// them back. A peer without tokens is cut off.
struct FloodLimits {
  std::int64_t tokens_max = 2000;
  std::int64_t tokens_per_second = 500;
};

// Reads the headers of the frames of a connection, before anything else does, and counts what they cost. It sees every
// frame, also those that nghttp2 ignores. At a server it also finds frames of a request on a stream that the client has
// ended or skipped: nghttp2 forgets closed streams, and ignores frames on those that it does not know. No I/O, no
// clock.
class FloodGuard {
 public:
  // Error codes of HTTP/2 (RFC 9113, section 7).
  static constexpr std::uint32_t protocol_error_code = 1;
  static constexpr std::uint32_t stream_closed_code = 5;
  static constexpr std::uint32_t calm_code = 11;
  // Costs in tokens.
  static constexpr std::int64_t settings_cost = 10;
  static constexpr std::int64_t ping_cost = 2;
  static constexpr std::int64_t continuation_cost = 10;
  // RST_STREAM, WINDOW_UPDATE, PRIORITY, DATA without bytes, unknown frames, and HEADERS that open no stream.
  static constexpr std::int64_t other_cost = 1;
  static constexpr std::int64_t sent_reset_cost = 10;
  static constexpr std::int64_t invalid_frame_cost = 10;
  // A peer that reads in parts of 4 KiB acknowledges each part to the stream and to the connection.
  static constexpr std::size_t bytes_of_update = 2048;
  static constexpr std::int64_t updates_of_frame = 2;
  // The WINDOW_UPDATEs for 2 GiB, the largest window of a connection.
  static constexpr std::int64_t updates_max = 1 << 20;
  // A block of HEADERS that opens no stream costs one token more for so many bytes: nghttp2 decodes it in any case.
  static constexpr std::size_t headers_bytes_of_token = 256;
  // A frame of DATA with any byte costs nothing: some clients send a frame for each write of their application, however
  // short. With padding it counts as if it had the longest one, because its length includes the padding.
  static constexpr std::size_t padding_bytes_max = 256;

  // `preface`: the bytes begin with the 24 bytes of a client's connection preface.
  explicit FloodGuard(const FloodLimits& limits, bool preface) noexcept
      : limits_(limits), tokens_(limits.tokens_max), skip_(preface ? preface_bytes : 0), server_(preface) {}

  // Counts received bytes: all, or those before the payload of the first frame that is disguised. False if the
  // connection must end. Then code() is the reason of its GOAWAY; with calm_code the peer has no tokens left and
  // reason() names the kind of the last frame, with others it is the fault.
  bool receive(Bytes bytes, Time now) noexcept;
  // The bytes that the last receive() has counted.
  std::size_t counted() const noexcept { return counted_; }
  // True if the last one of them ends the header of a frame that nghttp2 must not see as it is: header() is the header
  // of an unknown kind of frame, which nghttp2 skips.
  bool disguised() const noexcept { return disguised_; }
  // The header of the last frame; its first header_bytes() bytes have arrived while it is not complete.
  Bytes header() const noexcept { return std::as_bytes(std::span(header_)); }
  std::size_t header_bytes() const noexcept { return header_bytes_; }
  std::uint32_t code() const noexcept { return code_; }
  // Takes tokens for something that the connection did because of the peer.
  bool take(std::int64_t tokens, std::string_view why) noexcept {
    tokens_ -= tokens;
    if (tokens_ >= 0) return true;
    reason_ = why;
    return false;
  }
  // Gives tokens for work of use, such as a call that ended.
  void give(std::int64_t tokens) noexcept {
    tokens_ = tokens_ + tokens < limits_.tokens_max ? tokens_ + tokens : limits_.tokens_max;
  }
  // DATA of so many bytes was sent. The peer acknowledges it by WINDOW_UPDATEs when its application has read it, which
  // may be long after other DATA was sent. So these tokens are kept beside the others.
  void give_sent_data(std::size_t bytes) noexcept {
    give(updates_of_frame);
    updates_ += updates_of_frame + static_cast<std::int64_t>(bytes / bytes_of_update);
    if (updates_ > updates_max) updates_ = updates_max;
  }
  // A block of HEADERS that opens no stream was of use.
  void give_headers(std::size_t bytes) noexcept { give(headers_cost(bytes)); }
  bool exhausted() const noexcept { return tokens_ < 0; }
  std::string_view reason() const noexcept { return reason_; }
  std::int64_t tokens() const noexcept { return tokens_; }
  // Bytes of the frame that is arriving which have not arrived.
  std::size_t rest_of_frame() const noexcept { return skip_; }

  static constexpr std::size_t preface_bytes = 24;
  static constexpr std::size_t frame_header_bytes = 9;
  // The streams that a client may open one after another until the state of the first one is forgotten.
  static constexpr std::size_t remembered_streams = 64;

 private:
  bool on_frame() noexcept;
  bool on_request_frame(bool headers, bool end) noexcept;
  bool on_headers(bool end) noexcept;
  static constexpr std::int64_t headers_cost(std::size_t bytes) noexcept {
    return other_cost + static_cast<std::int64_t>(bytes / headers_bytes_of_token);
  }
  void on_reset() noexcept;
  bool violate(std::uint32_t code, std::string_view why) noexcept;
  std::uint32_t stream_id() const noexcept;

  const FloodLimits limits_;
  std::int64_t tokens_;
  std::int64_t updates_ = 0;  // WINDOW_UPDATEs that cost no token.
  Time refilled_{};
  bool clock_known_ = false;
  std::size_t skip_;  // Bytes before the next frame's header.
  std::array<std::uint8_t, frame_header_bytes> header_{};
  std::size_t header_bytes_ = 0;  // 0 once it is complete.
  std::size_t counted_ = 0;
  bool disguised_ = false;
  std::string_view reason_;
  std::uint32_t code_ = calm_code;
  // The streams of the client that it has opened last. An entry is twice the id, plus 1 if the client has ended or
  // reset the stream. The place is half of the id, modulo the size.
  const bool server_;
  std::uint32_t highest_id_ = 0;
  std::array<std::uint32_t, remembered_streams> streams_{};
};

}  // namespace hawser::protocol::http2
