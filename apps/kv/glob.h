#pragma once

#include <cstdint>
#include <string_view>

namespace hawser::kv {

// Returns true if `text` matches a pattern of Redis: * ? [abc] [^a-z] and \ before a character that stands for itself.
// The time is at most the product of the two lengths. Adds the characters that it compared to `steps`.
bool matches_glob(std::string_view pattern, std::string_view text, std::uint64_t& steps) noexcept;

}  // namespace hawser::kv
