#include "wire/metadata.h"

#include <cstring>

#include "base/decimal_text.h"
#include "base/little_endian.h"
#include "hawser/metadata.h"

namespace hawser {

std::optional<std::string_view> MetadataView::find(std::string_view key) const noexcept {
  wire::MetadataReader reader(bytes_);
  for (std::string_view one, value; reader.next(one, value);) {
    if (one == key) return value;
  }
  return std::nullopt;
}

Metadata MetadataView::copy() const {
  Metadata entries;
  wire::MetadataReader reader(bytes_);
  for (std::string_view key, value; reader.next(key, value);) entries.emplace_back(key, value);
  return entries;
}

}  // namespace hawser

namespace hawser::wire {
namespace {

// Returns false if no complete entry follows.
bool read_entry(ByteReader& reader, std::string_view& key, std::string_view& value) noexcept {
  const auto key_bytes = reader.number<std::uint8_t>();
  const auto value_bytes = reader.number<std::uint16_t>();
  key = as_text(reader.bytes(key_bytes));
  value = as_text(reader.bytes(value_bytes));
  return reader.complete();
}

}  // namespace

bool MetadataReader::next(std::string_view& key, std::string_view& value) noexcept {
  return !reader_.at_end() && read_entry(reader_, key, value);
}

bool check_metadata(Bytes bytes) noexcept {
  ByteReader reader(bytes);
  std::string_view key;
  std::string_view value;
  for (std::size_t entries = 0; !reader.at_end(); ++entries) {
    if (entries == metadata_entries_max || !read_entry(reader, key, value)) return false;
  }
  return true;
}

std::string MetadataSize::too_large_text() const {
  return "metadata of " + count_text(entries_, "entry") + " and " + count_text(bytes_, "byte") + ", with a key of " +
         count_text(key_bytes_, "byte") + ", exceeds a limit: send at most " + std::to_string(metadata_entries_max) +
         " entries, " + std::to_string(metadata_bytes_max) + " bytes in all and keys of " +
         std::to_string(metadata_key_bytes_max) + " bytes";
}

std::byte* write_metadata_entry(std::byte* to, std::string_view key, std::string_view value) noexcept {
  store_le(to, static_cast<std::uint8_t>(key.size()));
  store_le(to + 1, static_cast<std::uint16_t>(value.size()));
  std::memcpy(to + 3, key.data(), key.size());
  std::memcpy(to + 3 + key.size(), value.data(), value.size());
  return to + 3 + key.size() + value.size();
}

}  // namespace hawser::wire
