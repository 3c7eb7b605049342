#pragma once

#include <cstddef>
#include <string_view>

namespace hawser {

// Returns the length of the UTF-8 character at the front of `text`, which is not empty; 0 if there is none.
std::size_t utf8_character_bytes(std::string_view text) noexcept;
bool is_utf8(std::string_view text) noexcept;

}  // namespace hawser
