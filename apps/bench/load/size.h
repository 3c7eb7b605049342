#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hawser::bench {

// "128", "128B", "4K", "1M", "1G": K, M and G are powers of 1024. Empty if `text` is none of these.
std::optional<std::size_t> parse_size(std::string_view text);
// The shortest of these forms: "128B", "4K", "8M".
std::string format_size(std::size_t bytes);

}  // namespace hawser::bench
