#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "hawser/bytes.h"

namespace hawser::codec {

static_assert(std::endian::native == std::endian::little, "the encoding is the little-endian memory image");

// Contiguous sequences of blocks of at least this many bytes travel out of band, uncopied. The receiver is told case by
// case, so the two sides need not agree on it.
inline constexpr std::size_t out_of_band_bytes_min = 8 * 1024;
// Every piece begins at a multiple of this from the payload's start, so that it can be read in place; zeros fill the
// gap before it. Nothing follows the last one, so that a single sequence fits memory of just its size.
inline constexpr std::size_t payload_alignment = 8;
// The count of a sequence takes 31 bits; the top bit says that its elements travel in the payload.
inline constexpr std::uint32_t out_of_band_flag = 0x8000'0000;
inline constexpr std::size_t count_max = out_of_band_flag - 1;
// Containers and pointers nested deeper than this are refused by the sender: it walks them on its own stack.
inline constexpr std::size_t encode_depth_max = 256;

// What a value takes on the wire.
struct EncodedSize {
  std::size_t body = 0;     // Bytes.
  std::size_t payload = 0;  // Bytes, with padding.
  std::size_t pieces = 0;   // Number of Pieces that make up the payload.
  // The value can't be encoded: a sequence of more than `count_max` elements, an appended part above 4 GiB, or nesting
  // beyond `encode_depth_max`. The other fields then mean nothing, and the caller answers ErrorCode::limit_exceeded.
  bool too_large = false;

  friend bool operator==(const EncodedSize&, const EncodedSize&) = default;
};

// First pass: adds up what values will take. Must see the very values that the Encoder will see.
class Sizer {
 public:
  const EncodedSize& size() const noexcept { return size_; }

  void add(std::size_t bytes) noexcept { size_.body += bytes; }
  void add_count(std::size_t count) noexcept {
    size_.body += sizeof(std::uint32_t);
    if (count > count_max) [[unlikely]]
      size_.too_large = true;
  }
  // A counted sequence of blocks, in the body or out of band by its size.
  void add_blocks(std::size_t count, std::size_t element_bytes) noexcept {
    add_count(count);
    const std::size_t bytes = count * element_bytes;
    if (bytes < out_of_band_min_) {
      size_.body += bytes;
    } else {
      const std::size_t padding = -size_.payload % payload_alignment;
      size_.payload += padding + bytes;
      size_.pieces += padding == 0 ? 1 : 2;
    }
  }
  void set_too_large() noexcept { size_.too_large = true; }

  // Brackets the elements of a container or pointer, none of an empty one. False: too deep, go no further, nor leave().
  bool enter() noexcept {
    if (depth_ == encode_depth_max) [[unlikely]] {
      size_.too_large = true;
      return false;
    }
    ++depth_;
    return true;
  }
  void leave() noexcept { --depth_; }

  // From now on everything goes into the body (SIZE_MAX) or as before; returns what to restore.
  std::size_t set_out_of_band_min(std::size_t bytes) noexcept { return std::exchange(out_of_band_min_, bytes); }

 private:
  EncodedSize size_;
  std::size_t out_of_band_min_ = out_of_band_bytes_min;
  std::size_t depth_ = 0;
};

// Second pass: writes without checks into the room that the first pass asked for. The pieces point into the encoded
// values, which must stay where they are until the pieces have been sent.
class Encoder {
 public:
  // `body` has room for EncodedSize::body bytes, `pieces` for EncodedSize::pieces (null if that is zero).
  Encoder(std::byte* body, ConstBuffer* pieces) noexcept : body_(body), pieces_(pieces) {}

  // Where the next byte of the body goes; after the last value, the end of the body.
  std::byte* position() const noexcept { return body_; }
  ConstBuffer* pieces_end() const noexcept { return pieces_; }

  void write(const void* data, std::size_t bytes) noexcept {
    if (bytes != 0) std::memcpy(body_, data, bytes);
    body_ += bytes;
  }
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void write_scalar(T value) noexcept {
    std::memcpy(body_, &value, sizeof(T));
    body_ += sizeof(T);
  }
  void write_count(std::size_t count) noexcept { write_scalar(static_cast<std::uint32_t>(count)); }
  void write_blocks(const void* data, std::size_t count, std::size_t element_bytes) noexcept {
    const std::size_t bytes = count * element_bytes;
    if (bytes < out_of_band_min_) {
      write_count(count);
      write(data, bytes);
    } else {
      write_out_of_band(data, count, bytes);
    }
  }
  // Leaves room for a length that is known once what follows has been written.
  std::byte* begin_length() noexcept { return std::exchange(body_, body_ + sizeof(std::uint32_t)); }
  void end_length(std::byte* length) noexcept {
    const auto bytes = static_cast<std::uint32_t>(body_ - length - sizeof(std::uint32_t));
    std::memcpy(length, &bytes, sizeof(bytes));
  }

  std::size_t set_out_of_band_min(std::size_t bytes) noexcept { return std::exchange(out_of_band_min_, bytes); }

 private:
  static constexpr std::byte zeros_[payload_alignment] = {};

  void write_out_of_band(const void* data, std::size_t count, std::size_t bytes) noexcept {
    write_count(count | out_of_band_flag);
    const std::size_t padding = -payload_ % payload_alignment;
    if (padding != 0) *pieces_++ = {zeros_, padding};
    *pieces_++ = {static_cast<const std::byte*>(data), bytes};
    payload_ += padding + bytes;
  }

  std::byte* body_;
  ConstBuffer* pieces_;
  std::size_t payload_ = 0;  // Bytes of the pieces so far.
  std::size_t out_of_band_min_ = out_of_band_bytes_min;
};

}  // namespace hawser::codec
