#include "bench/load/payload.h"

#include <algorithm>
#include <cstring>

namespace hawser::bench {
namespace {

// A bijection of 64-bit words (the finalizer of splitmix64, https://prng.di.unimi.it/splitmix64.c): no output repeats.
std::uint64_t mixed(std::uint64_t word) noexcept {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

std::byte* fill(std::byte* bytes, std::size_t size_bytes) noexcept {
  std::uint64_t counter = 0;
  for (std::size_t at = 0; at < size_bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = mixed(counter++);
    std::memcpy(bytes + at, &word, sizeof(word));
  }
  return bytes;
}

}  // namespace

Payload::Payload(std::size_t size_bytes)
    : size_bytes_(size_bytes),
      lines_(new Line[memory_bytes(size_bytes) / sizeof(Line)]),
      bytes_(fill(lines_[0].bytes, memory_bytes(size_bytes))) {}

Payload::Payload(std::size_t size_bytes, MutableBytes memory)
    : size_bytes_(size_bytes), bytes_(fill(memory.data(), memory_bytes(size_bytes))) {}

bool same(std::string_view sent, std::string_view reply, Check check) noexcept {
  if (sent.size() != reply.size()) return false;
  if (check == Check::all) return sent == reply;
  const std::size_t end = std::min<std::size_t>(sent.size(), sizeof(std::uint64_t));
  return sent.substr(0, end) == reply.substr(0, end) &&
         sent.substr(sent.size() - end) == reply.substr(reply.size() - end);
}

}  // namespace hawser::bench
