#pragma once

namespace hawser {

// How a registered function is run.
struct HandlerOptions {
  // On a thread of the loop's offload pool: for functions that block. Such a call can't be interrupted; a server that
  // stops waits for it.
  bool offload = false;
};

}  // namespace hawser
