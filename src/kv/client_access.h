#pragma once

#include "hawser/kv.h"

namespace hawser::kv {

// For tests: clients whose reader has options.
struct KvClientAccess {
  // `reader` is that of the client `calls`, and outlives the result.
  static KvClient with(Client& calls, OneSidedReader& reader);
};

}  // namespace hawser::kv
