#include "kv/workload.h"

#include <fmt/format.h>

#include <cmath>

namespace hawser::kv {

KeyChooser::KeyChooser(std::uint64_t keys, bool zipfian) : keys_(keys), zipfian_(zipfian) {
  if (!zipfian) return;
  for (std::uint64_t i = 1; i <= keys; ++i) zeta_ += 1 / std::pow(static_cast<double>(i), exponent);
  const double zeta_of_two = 1 + std::pow(0.5, exponent);
  eta_ = (1 - std::pow(2.0 / static_cast<double>(keys), 1 - exponent)) / (1 - zeta_of_two / zeta_);
}

std::uint64_t KeyChooser::next(Random& random) const {
  if (!zipfian_) return random.below(keys_);
  const double u = static_cast<double>(random.next() >> 11) * 0x1.0p-53;
  const double scaled = u * zeta_;
  double rank = 0;
  if (scaled >= 1 + std::pow(0.5, exponent)) {
    rank = static_cast<double>(keys_) * std::pow(eta_ * u - eta_ + 1, 1 / (1 - exponent));
  } else if (scaled >= 1) {
    rank = 1;
  }
  return Random(static_cast<std::uint64_t>(rank)).next() % keys_;
}

std::string key_name(std::uint64_t number) { return fmt::format("user{:012}", number); }

Measurement::Measurement(const BenchOptions& workload)
    : options(workload),
      chooser(workload.keys, workload.distribution == "zipfian"),
      reads(workload.workload == "c"      ? 1.0
            : workload.workload == "b"    ? 0.95
            : workload.workload == "load" ? 0.0
                                          : 0.5),
      read_modify_write(workload.workload == "f"),
      value(workload.value_bytes, 'v') {}

}  // namespace hawser::kv
