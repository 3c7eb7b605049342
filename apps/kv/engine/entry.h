#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "kv/engine/arena.h"

namespace hawser::kv {

// A key with its hash under the store's secret.
struct Key {
  std::string_view bytes;
  std::uint64_t hash = 0;
};

// Header of a key with its value, in a slot of the arena. The key follows, and the value follows the key. A value
// that does not fit into a slot lies outside; its address follows the header then. docs/kv.md has the layout.
struct Entry {
  std::uint64_t hash;
  std::uint64_t version;    // Grows with each change of any entry of the shard.
  std::int64_t expires_at;  // Milliseconds since 1970; 0: never.
  Ref newer;                // Neighbours in the eviction queue of the size class.
  Ref older;
  std::uint32_t value_bytes;
  std::uint16_t key_bytes;
  std::uint8_t size_class;
  std::uint8_t visited : 1;  // Read since the eviction hand passed it.
  std::uint8_t outside : 1;  // The value lies outside of the arena.

  char* key_data() noexcept { return reinterpret_cast<char*>(this + 1) + (outside != 0 ? sizeof(char*) : 0); }
  std::string_view key() noexcept { return {key_data(), key_bytes}; }
  char* outside_data() noexcept {
    char* data = nullptr;
    std::memcpy(&data, this + 1, sizeof data);
    return data;
  }
  void set_outside_data(char* data) noexcept { std::memcpy(this + 1, &data, sizeof data); }
  char* value_data() noexcept { return outside != 0 ? outside_data() : key_data() + key_bytes; }
  std::string_view value() noexcept { return {value_data(), value_bytes}; }
  bool expired(std::int64_t now) const noexcept { return expires_at != 0 && expires_at <= now; }

  // Size of the slot.
  static constexpr std::size_t slot_bytes(std::size_t key_bytes, std::size_t value_bytes, bool outside) noexcept;
};
static_assert(sizeof(Entry) == 40);

constexpr std::size_t Entry::slot_bytes(std::size_t key_bytes, std::size_t value_bytes, bool outside) noexcept {
  return sizeof(Entry) + key_bytes + (outside ? sizeof(char*) : value_bytes);
}

}  // namespace hawser::kv
