#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/run/options.h"

namespace hawser::bench {

struct CopyMeasured {
  double seconds = 0;
  std::uint64_t bytes = 0;
};

// Copies blocks between the processors of the options by memcpy() alone: one thread copies a block into the next
// place of memory that both share, the other copies it into a region of `bytes` bytes.
CopyMeasured measure_copies(const RunOptions& options, std::size_t bytes);

}  // namespace hawser::bench
