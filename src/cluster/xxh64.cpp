#include "cluster/xxh64.h"

#include <array>
#include <bit>
#include <cstddef>

namespace hawser::cluster {
namespace {

constexpr std::uint64_t prime1 = 0x9E3779B185EBCA87U;
constexpr std::uint64_t prime2 = 0xC2B2AE3D27D4EB4FU;
constexpr std::uint64_t prime3 = 0x165667B19E3779F9U;
constexpr std::uint64_t prime4 = 0x85EBCA77C2B2AE63U;
constexpr std::uint64_t prime5 = 0x27D4EB2F165667C5U;
constexpr std::size_t lanes = 4;
constexpr std::size_t stripe_bytes = 32;

// Little-endian, at the begin of `bytes`.
template <class Number>
Number load(std::string_view bytes) noexcept {
  Number number = 0;
  for (std::size_t i = sizeof(Number); i-- > 0;) {
    number = static_cast<Number>(number << 8) | static_cast<unsigned char>(bytes[i]);
  }
  return number;
}

std::uint64_t round(std::uint64_t lane, std::uint64_t input) noexcept {
  return std::rotl(lane + input * prime2, 31) * prime1;
}

std::uint64_t of_stripes(std::string_view& bytes, std::uint64_t seed) noexcept {
  std::array<std::uint64_t, lanes> lane = {seed + prime1 + prime2, seed + prime2, seed, seed - prime1};
  for (; bytes.size() >= stripe_bytes; bytes.remove_prefix(stripe_bytes)) {
    for (std::size_t i = 0; i < lanes; ++i) lane[i] = round(lane[i], load<std::uint64_t>(bytes.substr(i * 8)));
  }
  std::uint64_t hash = std::rotl(lane[0], 1) + std::rotl(lane[1], 7) + std::rotl(lane[2], 12) + std::rotl(lane[3], 18);
  for (const std::uint64_t one : lane) hash = (hash ^ round(0, one)) * prime1 + prime4;
  return hash;
}

}  // namespace

std::uint64_t xxh64(std::string_view bytes, std::uint64_t seed) noexcept {
  const std::size_t size = bytes.size();
  std::uint64_t hash = size >= stripe_bytes ? of_stripes(bytes, seed) : seed + prime5;
  hash += size;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    hash = std::rotl(hash ^ round(0, load<std::uint64_t>(bytes)), 27) * prime1 + prime4;
  }
  if (bytes.size() >= 4) {
    hash = std::rotl(hash ^ (load<std::uint32_t>(bytes) * prime1), 23) * prime2 + prime3;
    bytes.remove_prefix(4);
  }
  for (const char c : bytes) hash = std::rotl(hash ^ (static_cast<unsigned char>(c) * prime5), 11) * prime1;
  hash = (hash ^ (hash >> 33)) * prime2;
  hash = (hash ^ (hash >> 29)) * prime3;
  return hash ^ (hash >> 32);
}

}  // namespace hawser::cluster
