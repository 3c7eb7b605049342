#pragma once

#include <cstddef>

#include "hawser/transport/stream.h"

namespace hawser::transport {

// Implemented by a Stream, beside that interface, that may hold bytes which it has accepted. Destroying such a stream
// drops them; the socket of a plain stream sends what it has accepted. Loop's thread only.
class UnsentSource {
 public:
  // The number of these bytes, also of those that finish() adds. It falls while the peer takes bytes. 0: the stream may
  // be destroyed.
  virtual std::size_t unsent() const noexcept = 0;

 protected:
  ~UnsentSource() = default;
};

// 0 if `stream` holds no bytes itself.
inline std::size_t unsent_of(const Stream* stream) noexcept {
  const auto* const source = dynamic_cast<const UnsentSource*>(stream);
  return source != nullptr ? source->unsent() : 0;
}

}  // namespace hawser::transport
