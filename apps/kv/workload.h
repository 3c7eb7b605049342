#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "hawser/detail/log_linear.h"
#include "hawser/error.h"
#include "kv/client_given.h"

namespace hawser::kv {

using Latencies = detail::LogLinear<5, 40>;  // Nanoseconds.

struct BenchOptions {
  ClientGiven server;
  std::string password = {};  // The content of ClientGiven::password_file; empty: there is none.
  std::string protocol = "hawser";
  std::string workload = "c";
  std::string transport = "tcp";
  std::string reads = "direct";
  std::string distribution = "zipfian";
  std::string json;
  std::size_t value_bytes = 64;
  std::uint64_t keys = 100'000;
  double seconds = 5;
  unsigned in_flight = 32;
  unsigned connections = 50;
};

// Ranks by the distribution of Zipf with exponent 0.99, as YCSB computes them (Gray and others, 1994), spread over the
// keys by a hash; or uniform.
class KeyChooser {
 public:
  KeyChooser(std::uint64_t keys, bool zipfian);
  std::uint64_t next(Random& random) const;

 private:
  static constexpr double exponent = 0.99;
  const std::uint64_t keys_;
  const bool zipfian_;
  double zeta_ = 0;
  double eta_ = 0;
};

std::string key_name(std::uint64_t number);

// A run of a workload and what it has measured.
struct Measurement {
  explicit Measurement(const BenchOptions& options);
  void count(std::uint64_t nanoseconds) {
    ++counts[Latencies::index_of(nanoseconds)];
    ++operations;
  }

  const BenchOptions& options;
  KeyChooser chooser;
  double reads;  // Part of the operations.
  bool read_modify_write;
  std::string value;
  std::vector<std::uint64_t> counts = std::vector<std::uint64_t>(Latencies::buckets);
  std::uint64_t operations = 0;
  std::uint64_t failed = 0;  // Operations that did not find their value.
  std::optional<Error> error = {};
};

}  // namespace hawser::kv
