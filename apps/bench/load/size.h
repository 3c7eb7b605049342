#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hawser::bench {

// Reads "128", "128B", "4K", "1M" or "1G"; K, M and G are powers of 1024. Empty if `text` has none of these forms.
std::optional<std::size_t> parse_size(std::string_view text);
// Returns the shortest of these forms: "128B", "4K", "8M".
std::string format_size(std::size_t bytes);

}  // namespace hawser::bench
