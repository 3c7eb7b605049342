#pragma once

#include "hawser/detail/stream_core.h"

namespace hawser::rpc {

// Wakes the writers that waited for room in a connection's backlog. Those that find no room wait again, in the same
// order.
inline void wake_writers(detail::WaitingWriter& writers) {
  detail::WaitingWriter woken;
  woken.take_all(writers);
  while (woken.linked()) {
    detail::WaitingWriter& first = *woken.next();
    first.unlink();
    detail::StreamCore::on_room(first);
  }
}

}  // namespace hawser::rpc
