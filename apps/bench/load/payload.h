#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "hawser/bytes.h"

namespace hawser::bench {

// Payloads of the calls. Each call sends a different window of one buffer in which no word occurs twice, so that a
// reply to another call is detected and memory does not grow with the calls in flight. Windows begin at cache lines and
// are valid as long as this object.
class Payload {
 public:
  static constexpr std::uint64_t windows = 1024;  // More calls in flight share windows.

  explicit Payload(std::size_t size_bytes);
  // Uses memory_bytes(size_bytes) bytes of the caller's memory, which must outlive this object.
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
  std::unique_ptr<Line[]> lines_;  // Null if the memory belongs to the caller.
  const std::byte* bytes_;
};

// Which part of a reply is compared. The length always is.
enum class Check { ends, all };

// Returns whether `reply` equals `sent`. The ends are the first and last 8 bytes.
bool same(std::string_view sent, std::string_view reply, Check check) noexcept;

}  // namespace hawser::bench
