#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "protocol/http2/stream_output.h"

namespace hawser::protocol::http2 {

// Checks at intervals whether the peer takes what a stream sends. Each check says how much the peer must take until the
// next one. No clock.
class StreamPace {
 public:
  // The peer must take so many bytes of a stream, or all that wait there, between two checks.
  static constexpr std::size_t taken_bytes_least = 16 * 1024;

  struct Shortfall {
    std::uint64_t taken = 0;
    std::size_t wanted = 0;
  };
  // Returns what was taken since the last check if it was too little.
  std::optional<Shortfall> check(const StreamOutput& out) noexcept {
    const Shortfall found{out.taken() - taken_, wanted_};
    taken_ = out.taken();
    wanted_ = std::min(out.bytes(), taken_bytes_least);
    if (found.taken >= found.wanted) return std::nullopt;
    return found;
  }

 private:
  std::uint64_t taken_ = 0;  // StreamOutput::taken() at the last check.
  std::size_t wanted_ = 0;
};

}  // namespace hawser::protocol::http2
