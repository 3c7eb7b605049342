#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/little_endian.h"
#include "hawser/bytes.h"

namespace hawser {

// Appends little-endian fields, for small messages of a handshake.
class ByteWriter {
 public:
  template <std::integral T>
  ByteWriter& number(T value) {
    const std::size_t end = bytes_.size();
    bytes_.resize(end + sizeof value);
    store_le(bytes_.data() + end, value);
    return *this;
  }
  ByteWriter& bytes(Bytes value) {
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }
  ByteWriter& zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  // Overwrites a field whose value is known only after later fields were appended.
  template <std::integral T>
  ByteWriter& replace(std::size_t offset, T value) noexcept {
    store_le(bytes_.data() + offset, value);
    return *this;
  }

  std::size_t size() const noexcept { return bytes_.size(); }
  Bytes written() const noexcept { return bytes_; }
  std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads received fields in order and never beyond the end: a missing field is read as 0 or as no bytes, and complete()
// is false from then on. A decoder therefore reads all fields and checks once.
class ByteReader {
 public:
  explicit ByteReader(Bytes bytes) noexcept : rest_(bytes) {}

  template <std::integral T>
  T number() noexcept {
    const Bytes field = bytes(sizeof(T));
    return field.empty() ? T{0} : load_le<T>(field.data());
  }
  // Returns a view into the bytes that are read.
  Bytes bytes(std::size_t count) noexcept {
    if (count > rest_.size()) {
      missing_ = true;
      rest_ = {};
      return {};
    }
    const Bytes field = rest_.first(count);
    rest_ = rest_.subspan(count);
    return field;
  }
  Bytes rest() noexcept { return std::exchange(rest_, {}); }
  // Fills `to`; all of it is zero if bytes are missing.
  void copy_to(MutableBytes to) noexcept {
    const Bytes field = bytes(to.size());
    if (field.empty()) {
      std::fill(to.begin(), to.end(), std::byte{0});
    } else {
      std::memcpy(to.data(), field.data(), field.size());
    }
  }
  // Returns true if the next bytes exist and are all 0. Reserved bytes must be 0.
  bool zeros(std::size_t count) noexcept {
    const Bytes field = bytes(count);
    return !missing_ && std::all_of(field.begin(), field.end(), [](std::byte one) { return one == std::byte{0}; });
  }

  bool at_end() const noexcept { return rest_.empty(); }
  // Returns true if no field was missing so far.
  bool complete() const noexcept { return !missing_; }
  // Returns true if no field was missing and no bytes are left.
  bool finished() const noexcept { return !missing_ && rest_.empty(); }

 private:
  Bytes rest_;
  bool missing_ = false;
};

}  // namespace hawser
