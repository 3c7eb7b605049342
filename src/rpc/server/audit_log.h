#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/lines_per_second.h"

namespace hawser {
class IncomingCall;
}

namespace hawser::rpc {

// Writes decisions about calls to the log of the call's loop, with the component "audit". Thread-safe.
class AuditLog {
 public:
  enum class Verdict : std::uint8_t { refused, allowed };

  // At most so many lines of each verdict are written in a second. A later line of that verdict states how many were
  // not. So refused calls, which anybody can make, do not hide the allowed ones.
  explicit AuditLog(std::uint32_t lines_per_second_max) noexcept : lines_per_second_max_(lines_per_second_max) {}

  // `reason` may be empty. Names and texts from peers are escaped and shortened. May throw std::bad_alloc.
  void write(IncomingCall& call, Verdict verdict, std::string_view reason = {});

 private:
  struct Counts {
    LinesPerSecond lines;
    std::atomic<std::uint64_t> omitted{0};
  };

  const std::uint32_t lines_per_second_max_;
  std::array<Counts, 2> counts_;  // By verdict.
};

}  // namespace hawser::rpc
