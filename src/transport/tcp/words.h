#pragma once

#include <algorithm>
#include <string_view>

namespace hawser::transport {

// Removes the first word from `text`, a line of a file below /etc, and returns it. Returns nothing if there is none.
inline std::string_view next_word(std::string_view& text) {
  constexpr std::string_view spaces = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(spaces));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace hawser::transport
