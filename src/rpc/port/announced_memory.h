#pragma once

#include <cstddef>

#include "hawser/detail/receive_account.h"

namespace hawser::rpc {

// Whether all memory of a message of `bytes` bytes may be allocated when `arrived` of them have come. A connection may
// have begun many messages. A long one has its memory when a sixteenth of it has arrived: an announcement of few bytes
// would make this side clear a huge page.
inline bool is_worth_its_memory(const detail::ReceiveAccount& account, std::size_t bytes,
                                std::size_t arrived) noexcept {
  constexpr std::size_t short_bytes = std::size_t{64} * 1024;
  return (bytes <= short_bytes || bytes / 16 <= arrived) && account.plenty(bytes);
}

}  // namespace hawser::rpc
