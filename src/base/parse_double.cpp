#include "base/parse_double.h"

#include <charconv>
#include <system_error>
#include <version>

#ifndef __cpp_lib_to_chars
#include <locale.h>
#include <stdlib.h>

#include <cerrno>
#include <cmath>
#include <string>
#endif

namespace hawser {

std::optional<double> parse_double(std::string_view text) noexcept {
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos || text.front() == '+') {
    return std::nullopt;
  }
#ifdef __cpp_lib_to_chars
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
#else  // libc++ 19 reads only integers.
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  const std::string terminated(text);
  char* end = nullptr;
  errno = 0;
  const double value = strtod_l(terminated.c_str(), &end, plain);
  if (end != terminated.c_str() + terminated.size() || std::isinf(value) || (value == 0 && errno == ERANGE)) {
    return std::nullopt;
  }
  return value;
#endif
}

}  // namespace hawser
