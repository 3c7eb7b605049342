#pragma once

#include <cstdint>
#include <string_view>

namespace hawser {

enum class MetricKind : std::uint8_t { counter, gauge };

// A metric that the library defines, as a row of a table. The names and their rules are those of MetricInfo.
struct MetricRow {
  MetricKind kind = MetricKind::counter;
  std::string_view name;  // Without the suffix "_total" of a counter.
  std::string_view help;
  std::string_view unit = {};  // Such as "bytes".
};

}  // namespace hawser
