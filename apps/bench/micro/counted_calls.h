#pragma once

#include <cstddef>
#include <cstdint>

namespace hawser::bench {

// Echo calls over TCP between two threads of this process, for counting what they cost: thread 1 is the client, another
// the server.
struct CountedShape {
  std::size_t size_bytes = 128;
  unsigned in_flight = 1;
  std::uint64_t calls = 1000;
};

// Calls that reached operator new, by the thread that made them, within the counted calls.
struct CountedAllocations {
  std::uint64_t client = 0;
  std::uint64_t server = 0;
};

// Warms up with as many calls as `warm_up` says, then makes those that count. Throws std::runtime_error where a call
// fails.
CountedAllocations make_counted_calls(const CountedShape& shape, std::uint64_t warm_up);

}  // namespace hawser::bench
