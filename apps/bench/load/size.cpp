#include "bench/load/size.h"

#include <charconv>
#include <limits>

namespace hawser::bench {
namespace {

struct SizeUnit {
  char letter;
  std::size_t bytes;
};
constexpr SizeUnit units[] = {
    {'G', std::size_t{1} << 30}, {'M', std::size_t{1} << 20}, {'K', std::size_t{1} << 10}, {'B', 1}};

}  // namespace

std::optional<std::size_t> parse_size(std::string_view text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.empty()) return number;
  for (const SizeUnit& unit : units) {
    const bool names_it = text.size() == 1 && (text[0] | 0x20) == (unit.letter | 0x20);
    if (!names_it) continue;
    if (number > std::numeric_limits<std::size_t>::max() / unit.bytes) return std::nullopt;
    return number * unit.bytes;
  }
  return std::nullopt;
}

std::string format_size(std::size_t bytes) {
  for (const SizeUnit& unit : units) {
    if (bytes >= unit.bytes && bytes % unit.bytes == 0) return std::to_string(bytes / unit.bytes) + unit.letter;
  }
  return std::to_string(bytes) + "B";
}

}  // namespace hawser::bench
