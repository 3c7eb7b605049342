#include "base/decimal_text.h"

#include <array>
#include <charconv>
#include <system_error>

namespace hawser {
namespace {

std::string written(double value, std::chars_format format, int precision) {
  std::array<char, 400> text;  // The largest double has 309 digits before the point.
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value, format, precision);
  return error == std::errc() ? std::string(text.data(), end) : std::string("?");
}

}  // namespace

std::string fixed_text(double value, int decimals) { return written(value, std::chars_format::fixed, decimals); }
std::string short_text(double value, int digits) { return written(value, std::chars_format::general, digits); }

std::string count_text(std::uint64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text.append(noun);
  if (noun.ends_with('y')) return text.append(noun.substr(0, noun.size() - 1)) + "ies";
  return text.append(noun) + (noun.ends_with('s') ? "es" : "s");
}

}  // namespace hawser
