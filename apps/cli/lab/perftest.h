#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

#include "lab/steps/ladder.h"

namespace hawser::cli::lab {

struct PerftestPlan {
  hawser::lab::TransferMode transfer = hawser::lab::TransferMode::write;
  std::string device;
  unsigned port = 1;
  std::size_t size_bytes = 65'536;
  unsigned depth = 128;
  std::uint64_t iterations = 1000;
};

// Returns the average Gb/s (10^9) of ib_send_bw, ib_write_bw or ib_read_bw between two processes on one device. The
// error text gives the reason of a failure, such as a program that is not installed.
std::expected<double, std::string> run_perftest(const PerftestPlan& plan);

// Returns the average in the last line of figures that such a tool prints with --report_gbits, or an error if there is
// no such line.
std::expected<double, std::string> parse_perftest(std::string_view output);

}  // namespace hawser::cli::lab
