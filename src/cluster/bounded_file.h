#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "hawser/error.h"

namespace hawser::cluster {

// Reads a regular file that has at most `bytes_max` bytes; `limit` is the name of that limit, for the error. Blocks.
// Fails with `unavailable` and `limit_exceeded`.
Result<std::string> read_bounded_file(const std::string& path, std::size_t bytes_max, std::string_view limit);

// Reads a file with a token, or with another word, of at most 64 KiB, without blanks and ends of lines behind it.
// Blocks.
Result<std::string> read_token_file(const std::string& path);

}  // namespace hawser::cluster
