#pragma once

#include <cstddef>
#include <cstdint>

#include "hawser/bytes.h"

namespace hawser::negotiate {

// Recognises other protocols than the library's own by the first bytes of a connection.
class FirstBytes {
 public:
  // Number of the bytes that are shown to match() at most.
  static constexpr std::size_t bytes_max = 24;

  // `more`: the bytes may be the beginning of a protocol. Once bytes_max bytes are there, `more` counts as `no`.
  enum class Match : std::uint8_t { no, more, yes };
  virtual Match match(Bytes first) const noexcept = 0;

 protected:
  ~FirstBytes() = default;
};

}  // namespace hawser::negotiate
