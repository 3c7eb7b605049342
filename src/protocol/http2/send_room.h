#pragma once

#include <cstddef>

namespace hawser::protocol::http2 {

// Bytes that wait to be sent on a connection, at either of its ends.
struct SendRoom {
  std::size_t queued = 0;   // Bytes that the transport has not taken.
  std::size_t waiting = 0;  // Bytes that wait in streams, for their windows or for room in the queue.
  std::size_t mark = 0;
  bool memory_left = true;

  // True if the writers of streams may go on. Items that wait for the windows of other streams do not stop a writer
  // while there is memory: each stream is bounded by its own credit.
  constexpr bool for_items() const noexcept { return queued <= mark && (memory_left || queued + waiting <= mark); }
};

}  // namespace hawser::protocol::http2
