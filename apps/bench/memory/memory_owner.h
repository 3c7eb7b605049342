#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/run/options.h"

namespace hawser::bench {

// Byte of the pattern that owner and client expect at `position`.
constexpr unsigned char memory_pattern(std::uint64_t position) noexcept {
  return static_cast<unsigned char>(position * 131 + (position >> 8) * 17);
}

// A process that owns memory, which it exposes over the transport of the options, or serves by bare sockets.
class MemoryOwner {
 public:
  // Starts the process. address() is empty if it failed; the process has printed why.
  MemoryOwner(const RunOptions& options, std::size_t region_bytes, bool sockets);
  MemoryOwner(const MemoryOwner&) = delete;
  MemoryOwner& operator=(const MemoryOwner&) = delete;
  // Ends the process and waits for it.
  ~MemoryOwner();

  const std::string& address() const noexcept { return address_; }

 private:
  pid_t process_ = -1;
  int life_ = -1;  // The process ends when this is closed.
  std::string address_;
};

}  // namespace hawser::bench
