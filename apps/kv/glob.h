#pragma once

#include <string_view>

namespace hawser::kv {

// Returns true if `text` matches a pattern of Redis: * ? [abc] [^a-z] and \ before a character that stands for itself.
// The time is at most the product of the two lengths.
bool matches_glob(std::string_view pattern, std::string_view text) noexcept;

}  // namespace hawser::kv
