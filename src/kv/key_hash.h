#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hawser::kv {

// The secret of a store's hash function. A client that does not know it cannot choose keys that collide.
struct HashSecret {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  bool operator==(const HashSecret&) const = default;
};

// SipHash-1-3 (Aumasson and Bernstein, 2012; the variant with one and three rounds) of a key. Little-endian machines
// only, as all of this program.
inline std::uint64_t hash_of(const HashSecret& secret, std::string_view key) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t v0 = secret.first ^ 0x736f6d6570736575U;
  std::uint64_t v1 = secret.second ^ 0x646f72616e646f6dU;
  std::uint64_t v2 = secret.first ^ 0x6c7967656e657261U;
  std::uint64_t v3 = secret.second ^ 0x7465646279746573U;
  const auto round = [&] {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  };
  const auto absorb = [&](std::uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  };
  const char* at = key.data();
  std::size_t left = key.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    absorb(word);
  }
  std::uint64_t last = static_cast<std::uint64_t>(key.size()) << 56;
  for (std::size_t i = 0; i < left; ++i) {
    last |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  }
  absorb(last);
  v2 ^= 0xff;
  round();
  round();
  round();
  return v0 ^ v1 ^ v2 ^ v3;
}

// The shard of a key, by the upper 16 bits of its hash.
inline unsigned shard_of(std::uint64_t hash, std::size_t shards) noexcept {
  return static_cast<unsigned>(((hash >> 48) * shards) >> 16);
}

}  // namespace hawser::kv
