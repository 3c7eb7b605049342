#pragma once

#include <span>

#include "bench/run/cell.h"

namespace hawser::bench {

// Returns the median of each column over the repetitions of one cell, and the sum of all errors. For an even number,
// the median is the mean of the two values in the middle. `repetitions` is not empty.
CellResult median_of(std::span<const CellResult> repetitions);

// Returns calls/s of `ours` divided by those of `peer`: 2 is twice as fast. 0 if the peer made no calls.
double ratio_of(const CellResult& ours, const CellResult& peer) noexcept;

}  // namespace hawser::bench
