#pragma once

namespace hawser {

// How the server executes a registered function.
struct HandlerOptions {
  // Executes the function on a thread of the loop's offload pool, for functions that block. Such a call cannot be
  // interrupted; a server that stops waits for it.
  bool offload = false;
};

}  // namespace hawser
