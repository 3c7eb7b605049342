#pragma once

#include <cstddef>

#include "hawser/bytes.h"

namespace hawser::transport {

// Implemented by a Connection that can loan the memory in which a payload reaches the peer to the application, beside
// that interface. Loop's thread only.
class LoanMemory {
 public:
  // Returns memory for a payload of `bytes` bytes, or an empty Buffer if there is none now. A message whose payload is
  // one piece that begins where the memory begins is sent in place. The peer may read and write the memory from
  // then on. The Buffer may outlive the connection and may be released on any thread. May throw std::bad_alloc.
  virtual Buffer loan(std::size_t bytes) = 0;

 protected:
  ~LoanMemory() = default;
};

// A loan of a Connection. Empty if it gives none.
template <class Carrier>
Buffer loan_of(Carrier& connection, std::size_t bytes) {
  auto* const source = dynamic_cast<LoanMemory*>(&connection);
  return source != nullptr ? source->loan(bytes) : Buffer();
}

}  // namespace hawser::transport
