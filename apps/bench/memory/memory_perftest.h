#pragma once

#include <cstddef>
#include <string>

#include "bench/run/options.h"

namespace hawser::bench {

struct PerftestMeasured {
  std::string problem;  // Why nothing was measured; empty: it was.
  double gbit_per_s = 0;
  double typical_us = 0;  // With one block in flight: of a read, or the half of a round trip of two writes.
};

// Measures the first RDMA device of this machine by perftest, in two processes on the processors of the options:
// ib_read_bw or ib_write_bw with blocks of the same size and as many in flight, up to 128. One block in flight is
// measured by ib_read_lat or ib_write_lat.
PerftestMeasured measure_perftest(const RunOptions& options);

}  // namespace hawser::bench
