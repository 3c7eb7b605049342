#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "hawser/bytes.h"

namespace hawser::bench {

// What calls send. Each shows another window of one buffer in which no word comes twice, so that a mixed-up reply is
// noticed and memory does not grow with the calls in flight. Windows begin at cache lines; they stay valid as long as
// this.
class Payload {
 public:
  static constexpr std::uint64_t windows = 1024;  // Calls in flight beyond that share theirs.

  explicit Payload(std::size_t size_bytes);
  // In memory_bytes(size_bytes) of the caller's, which lasts longer.
  Payload(std::size_t size_bytes, MutableBytes memory);

  static constexpr std::size_t memory_bytes(std::size_t size_bytes) noexcept {
    return (windows + (size_bytes + sizeof(Line) - 1) / sizeof(Line)) * sizeof(Line);
  }
  std::string_view of(std::uint64_t call) const noexcept {
    return {reinterpret_cast<const char*>(bytes_) + call % windows * sizeof(Line), size_bytes_};
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  std::size_t size_bytes_;
  std::unique_ptr<Line[]> lines_;  // Null if the memory is the caller's.
  const std::byte* bytes_;
};

// How much of a reply is compared; its length always is.
enum class Check { ends, all };

// Whether `reply` is `sent`. The ends are the first and last 8 bytes.
bool same(std::string_view sent, std::string_view reply, Check check) noexcept;

}  // namespace hawser::bench
