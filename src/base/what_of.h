#pragma once

#include <exception>
#include <string_view>

namespace hawser {

// The text of an exception. what() of a class of the application may be null, of which no std::string can be made.
inline std::string_view what_of(const std::exception& exception) noexcept {
  const char* const text = exception.what();
  return text != nullptr ? text : "an exception without a text";
}

}  // namespace hawser
