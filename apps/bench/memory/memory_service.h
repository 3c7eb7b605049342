#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "bench/memory/memory_owner.h"
#include "hawser/hawser.h"
#include "hawser/memory.h"

namespace hawser::bench {

// The memory that the owner exposes, and the calls beside the accesses.
class MemoryService {
 public:
  MemoryService(const Server& server, std::size_t bytes)
      : buffer_(std::move(RegisteredBuffer::allocate(server, bytes).value())),
        region_(std::move(buffer_.expose(0, bytes, RegionAccess::read_write).value())) {
    refill();
  }
  RemoteRegion region() { return region_.handle(); }
  // Fills the memory with the pattern.
  void refill() {
    for (std::size_t i = 0; i < buffer_.size(); ++i) buffer_.memory()[i] = static_cast<std::byte>(memory_pattern(i));
  }

 private:
  RegisteredBuffer buffer_;
  ExposedRegion region_;
};

inline std::string memory_echo(std::string text) { return text; }

}  // namespace hawser::bench
