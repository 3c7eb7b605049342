#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/byte_fields.h"
#include "hawser/bytes.h"
#include "hawser/error.h"

namespace hawser::wire {

// Metadata on the wire. Each entry is u8 key bytes, u16 value bytes, key, value. At most 64 entries and 65,535 bytes in
// all.
inline constexpr std::size_t metadata_entries_max = 64;
inline constexpr std::size_t metadata_bytes_max = 65'535;
inline constexpr std::size_t metadata_key_bytes_max = 255;

// Iterates over entries that check_metadata() accepted.
class MetadataReader {
 public:
  explicit MetadataReader(Bytes bytes) noexcept : reader_(bytes) {}
  // Returns false at the end.
  bool next(std::string_view& key, std::string_view& value) noexcept;

 private:
  ByteReader reader_;
};

// Returns true if `bytes` are well-formed metadata within the limits.
bool check_metadata(Bytes bytes) noexcept;

inline std::size_t metadata_entry_bytes(std::string_view key, std::string_view value) noexcept {
  return 3 + key.size() + value.size();
}
// The size of metadata that is to be sent.
class MetadataSize {
 public:
  void add(std::string_view key, std::string_view value) noexcept {
    ++entries_;
    bytes_ += metadata_entry_bytes(key, value);
    key_bytes_ = std::max(key_bytes_, key.size());
  }
  std::size_t bytes() const noexcept { return bytes_; }
  // False if it exceeds a limit. The text says by how much.
  bool fits() const noexcept {
    return entries_ <= metadata_entries_max && bytes_ <= metadata_bytes_max && key_bytes_ <= metadata_key_bytes_max;
  }
  std::string too_large_text() const;

 private:
  std::size_t entries_ = 0;
  std::size_t bytes_ = 0;      // All entries together.
  std::size_t key_bytes_ = 0;  // The longest key.
};

// Writes one entry and returns the position behind it.
std::byte* write_metadata_entry(std::byte* to, std::string_view key, std::string_view value) noexcept;

}  // namespace hawser::wire
