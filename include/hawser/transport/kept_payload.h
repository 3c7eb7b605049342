#pragma once

#include "hawser/bytes.h"

namespace hawser::transport {

// The owner of a payload that is in one block. The bytes of the block do not change any more, and copy_and_release() is
// never called for it. A connection that cannot stop using memory, such as one of UCX, sends from the block. It keeps a
// reference to the block, also after on_send_complete() has been called because the connection has ended.
class KeptPayload : public SendCompletion {
 public:
  // The block that holds the whole payload. It lives at least until on_send_complete().
  virtual Block& block() noexcept = 0;

 protected:
  ~KeptPayload() = default;
};

}  // namespace hawser::transport
