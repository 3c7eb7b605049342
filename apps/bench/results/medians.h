#pragma once

#include <span>

#include "bench/run/cell.h"

namespace hawser::bench {

// The median of each column over the repetitions of one cell, with all errors added up. Of an even number, the mean of
// the two in the middle. `repetitions` is not empty.
CellResult median_of(std::span<const CellResult> repetitions);

// Calls/s of `ours` to those of `peer`: 2 is twice as fast. 0 if the peer made no calls.
double ratio_of(const CellResult& ours, const CellResult& peer) noexcept;

}  // namespace hawser::bench
