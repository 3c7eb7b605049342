#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "hawser/bytes.h"

namespace hawser::resp {

// Finds the first arguments after the names of the commands at the begin of `bytes`, which is the begin of a request:
// the keys, for commands that have one. A hint for prefetching: it ends at the first request that is not complete, is
// inline or malformed, or has no argument or more than 15 after the name. Returns the number of keys, which are views
// of `bytes`.
std::size_t keys_ahead(Bytes bytes, std::span<std::string_view> keys) noexcept;

}  // namespace hawser::resp
