#include "wire/metadata.h"

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

// False if `rest` does not begin with a whole entry.
bool take_entry(Bytes& rest, std::string_view& key, std::string_view& value) noexcept {
  constexpr std::size_t lengths = 3;
  if (rest.size() < lengths) return false;
  const std::size_t key_bytes = load_le<std::uint8_t>(rest.data());
  const std::size_t value_bytes = load_le<std::uint16_t>(rest.data() + 1);
  if (rest.size() < lengths + key_bytes + value_bytes) return false;
  key = as_text(rest.subspan(lengths, key_bytes));
  value = as_text(rest.subspan(lengths + key_bytes, value_bytes));
  rest = rest.subspan(lengths + key_bytes + value_bytes);
  return true;
}

}  // namespace

bool MetadataReader::next(std::string_view& key, std::string_view& value) noexcept {
  return take_entry(rest_, key, value);
}

bool check_metadata(Bytes bytes) noexcept {
  std::string_view key;
  std::string_view value;
  for (std::size_t entries = 0; !bytes.empty(); ++entries) {
    if (entries == metadata_entries_max || !take_entry(bytes, key, value)) return false;
  }
  return true;
}

std::byte* write_metadata_entry(std::byte* to, std::string_view key, std::string_view value) noexcept {
  store_le(to, static_cast<std::uint8_t>(key.size()));
  store_le(to + 1, static_cast<std::uint16_t>(value.size()));
  std::memcpy(to + 3, key.data(), key.size());
  std::memcpy(to + 3 + key.size(), value.data(), value.size());
  return to + 3 + key.size() + value.size();
}

}  // namespace hawser::wire
