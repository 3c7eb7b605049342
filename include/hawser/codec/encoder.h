#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::codec {

static_assert(std::endian::native == std::endian::little, "the encoding is the little-endian memory image");

// Contiguous sequences of blocks of at least this many bytes are sent out of band, without a copy. The message states
// for each sequence whether it is out of band, so the two sides need not agree on this value.
inline constexpr std::size_t out_of_band_bytes_min = 8 * 1024;
// Every piece begins at a multiple of this offset in the payload, so that it can be read in place. Zeros fill the gap
// before it. Nothing follows the last piece, so that a single sequence fits memory of exactly its size.
inline constexpr std::size_t payload_alignment = 8;
// The count of a sequence has 31 bits. The top bit is set if its elements are in the payload.
inline constexpr std::uint32_t out_of_band_flag = 0x8000'0000;
inline constexpr std::size_t count_max = out_of_band_flag - 1;
// The sender refuses containers and pointers that are nested deeper than this, because it walks them recursively.
inline constexpr std::size_t encode_depth_max = 256;

// Size of encoded values.
struct EncodedSize {
  std::size_t body = 0;     // In bytes.
  std::size_t payload = 0;  // In bytes, with padding.
  std::size_t pieces = 0;   // Number of ConstBuffers that make up the payload.
  // The value cannot be encoded: a sequence of more than `count_max` elements, an appended part above 4 GiB, nesting
  // beyond `encode_depth_max`, or what the codec of a type refuses. The sizes are meaningless then, and the caller
  // reports `code` and `why_not`.
  bool too_large = false;
  ErrorCode code = ErrorCode::limit_exceeded;
  const char* why_not = "a sequence of 2^31 elements or more, or nesting deeper than 256";

  friend bool operator==(const EncodedSize&, const EncodedSize&) = default;
};

// First pass: computes the size of the encoded values. The Encoder must get the same values, unchanged.
class Sizer {
 public:
  const EncodedSize& size() const noexcept { return size_; }

  void add(std::size_t bytes) noexcept { size_.body += bytes; }
  void add_count(std::size_t count) noexcept {
    size_.body += sizeof(std::uint32_t);
    if (count > count_max) [[unlikely]]
      size_.too_large = true;
  }
  // Adds a counted sequence of blocks. Its size decides whether it is in the body or out of band.
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
  // The text must be valid for ever.
  void refuse(ErrorCode code, const char* why_not) noexcept { size_ = {0, 0, 0, true, code, why_not}; }

  // Called before and after the elements of a container or pointer; not for an empty one. False: nested too deeply; the
  // caller skips the elements and does not call leave().
  bool enter() noexcept {
    if (depth_ == encode_depth_max) [[unlikely]] {
      size_.too_large = true;
      return false;
    }
    ++depth_;
    return true;
  }
  void leave() noexcept { --depth_; }

  // Sets the minimum size of sequences that are out of band; SIZE_MAX: everything is in the body. Returns the value
  // before.
  std::size_t set_out_of_band_min(std::size_t bytes) noexcept { return std::exchange(out_of_band_min_, bytes); }

 private:
  EncodedSize size_;
  std::size_t out_of_band_min_ = out_of_band_bytes_min;
  std::size_t depth_ = 0;
};

// Second pass: writes into memory of the size that the first pass computed, without checks. The pieces refer to the
// encoded values, which must stay valid and unchanged until the pieces have been sent.
class Encoder {
 public:
  // `body` has room for EncodedSize::body bytes, `pieces` for EncodedSize::pieces elements (null if that is zero).
  Encoder(std::byte* body, ConstBuffer* pieces) noexcept : body_(body), pieces_(pieces) {}

  // Address of the next byte of the body; after the last value, the end of the body.
  std::byte* position() const noexcept { return body_; }
  ConstBuffer* pieces_end() const noexcept { return pieces_; }

  void write(const void* data, std::size_t bytes) noexcept {
    if (bytes != 0) detail::copy_bytes(body_, data, bytes);
    body_ += bytes;
  }
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void write_scalar(T value) noexcept {
    detail::copy_bytes(body_, &value, sizeof(T));
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
  // Returns the address of the next `bytes` of the body, which the caller writes.
  std::byte* skip(std::size_t bytes) noexcept { return std::exchange(body_, body_ + bytes); }
  // Leaves room for a length that is written when the following values have been encoded.
  std::byte* begin_length() noexcept { return std::exchange(body_, body_ + sizeof(std::uint32_t)); }
  void end_length(std::byte* length) noexcept {
    const auto bytes = static_cast<std::uint32_t>(body_ - length - sizeof(std::uint32_t));
    detail::copy_bytes(length, &bytes, sizeof(bytes));
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
