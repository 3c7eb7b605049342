#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::bench {

// Echo calls over TCP between two threads of this process, for counting their cost: thread 1 is the client, another
// thread the server.
struct CountedShape {
  std::size_t size_bytes = 128;
  unsigned in_flight = 1;
  std::uint64_t calls = 1000;
  bool tracer = false;  // The server has a Tracer with its default options, which samples no call.
};

// Allocations by operator new during the counted calls, by thread.
struct CountedAllocations {
  std::uint64_t client = 0;
  std::uint64_t server = 0;
};

// Makes `warm_up` calls, then the counted ones. Throws std::runtime_error if a call fails.
CountedAllocations make_counted_calls(const CountedShape& shape, std::uint64_t warm_up);

}  // namespace hawser::bench
