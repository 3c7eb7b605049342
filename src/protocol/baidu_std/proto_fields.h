#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "hawser/bytes.h"

// The fields of BaiduStdProtocol Buffers messages on the wire, as far as RpcMeta and StreamFrameMeta need them.
namespace hawser::protocol::baidu_std {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

constexpr std::size_t varint_bytes_max = 10;

inline std::size_t varint_bytes(std::uint64_t value) noexcept {
  std::size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// Reads the fields of one message in order. After malformed bytes, next() returns false and ok() is false.
class FieldReader {
 public:
  explicit FieldReader(Bytes bytes) noexcept : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  struct Field {
    std::uint32_t number = 0;
    WireType type = WireType::varint;
    std::uint64_t value = 0;  // The value of a varint.
    Bytes bytes;              // The value of a field of WireType::bytes.

    std::string_view text() const noexcept { return as_text(bytes); }
    bool is(std::uint32_t expected, WireType with) const noexcept { return number == expected && type == with; }
  };

  // Returns false at the end of the message. Groups are refused.
  bool next(Field& field) noexcept {
    if (at_ == end_) return false;
    std::uint64_t tag = 0;
    if (!read_varint(tag) || tag >> 32 != 0 || tag >> 3 == 0) return fail();
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.type = static_cast<WireType>(tag & 7);
    switch (field.type) {
      case WireType::varint: return read_varint(field.value) || fail();
      case WireType::fixed64: return skip(8) || fail();
      case WireType::fixed32: return skip(4) || fail();
      case WireType::bytes: {
        std::uint64_t size = 0;
        if (!read_varint(size) || size > static_cast<std::uint64_t>(end_ - at_)) return fail();
        field.bytes = Bytes(at_, static_cast<std::size_t>(size));
        at_ += size;
        return true;
      }
    }
    return fail();
  }
  // Reads the next number of a packed field, whose bytes the reader has in place of a message's.
  bool next_packed(std::uint64_t& value) noexcept {
    if (at_ == end_) return false;
    return read_varint(value) || fail();
  }
  bool ok() const noexcept { return ok_; }

 private:
  bool read_varint(std::uint64_t& value) noexcept {
    value = 0;
    for (unsigned shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const auto byte = static_cast<std::uint64_t>(*at_++);
      // Bits beyond the 64th are dropped, as other readers of BaiduStdProtocol Buffers do.
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool skip(std::ptrdiff_t bytes) noexcept {
    if (end_ - at_ < bytes) return false;
    at_ += bytes;
    return true;
  }
  bool fail() noexcept {
    ok_ = false;
    at_ = end_;
    return false;
  }

  const std::byte* at_;
  const std::byte* end_;
  bool ok_ = true;
};

// Counts the bytes of fields. Has the functions of FieldWriter, so that one function describes a message for both.
class FieldSizer {
 public:
  std::size_t bytes() const noexcept { return bytes_; }

  void varint(std::uint32_t number, std::uint64_t value) noexcept { bytes_ += tag(number) + varint_bytes(value); }
  void text(std::uint32_t number, std::string_view value) noexcept {
    bytes_ += tag(number) + varint_bytes(value.size()) + value.size();
  }
  template <class Describe>
  void message(std::uint32_t number, Describe describe) noexcept {
    FieldSizer inner;
    describe(inner);
    bytes_ += tag(number) + varint_bytes(inner.bytes()) + inner.bytes();
  }

 private:
  static std::size_t tag(std::uint32_t number) noexcept { return number < 16 ? 1 : 2; }
  std::size_t bytes_ = 0;
};

// Writes fields into memory of the size that FieldSizer counted. Field numbers are below 2048.
class FieldWriter {
 public:
  explicit FieldWriter(std::byte* to) noexcept : at_(to) {}
  std::byte* position() const noexcept { return at_; }

  void varint(std::uint32_t number, std::uint64_t value) noexcept {
    raw(std::uint64_t{number} << 3 | static_cast<std::uint64_t>(WireType::varint));
    raw(value);
  }
  void text(std::uint32_t number, std::string_view value) noexcept {
    begin(number, value.size());
    if (!value.empty()) std::memcpy(at_, value.data(), value.size());
    at_ += value.size();
  }
  template <class Describe>
  void message(std::uint32_t number, Describe describe) noexcept {
    FieldSizer inner;
    describe(inner);
    begin(number, inner.bytes());
    describe(*this);
  }

 private:
  void begin(std::uint32_t number, std::size_t bytes) noexcept {
    raw(std::uint64_t{number} << 3 | static_cast<std::uint64_t>(WireType::bytes));
    raw(bytes);
  }
  void raw(std::uint64_t value) noexcept {
    for (; value >= 0x80; value >>= 7) *at_++ = static_cast<std::byte>(value | 0x80);
    *at_++ = static_cast<std::byte>(value);
  }
  std::byte* at_;
};

}  // namespace hawser::protocol::baidu_std
