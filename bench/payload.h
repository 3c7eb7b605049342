#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace hawser::bench {

// What calls send. Each shows another window of one buffer in which no word comes twice, so that a mixed-up reply is
// noticed and memory does not grow with the calls in flight. Windows begin at cache lines; they stay valid as long as this.
class Payload {
 public:
  static constexpr std::uint64_t windows = 1024;  // Calls in flight beyond that share theirs.

  explicit Payload(std::size_t size_bytes);

  std::string_view of(std::uint64_t call) const noexcept { return {lines_[call % windows].bytes, size_bytes_}; }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };

  const std::size_t size_bytes_;
  const std::unique_ptr<Line[]> lines_;
};

// How much of a reply is compared; its length always is.
enum class Check { ends, all };

// Whether `reply` is `sent`. The ends are the first and last 8 bytes.
bool same(std::string_view sent, std::string_view reply, Check check) noexcept;

}  // namespace hawser::bench
