#pragma once

#include <algorithm>

#include "hawser/context.h"
#include "hawser/loop.h"
#include "hawser/reply.h"

namespace hawser {

// Options of a call that a handler makes to answer its own call: it has no more time than the handler has, and it is
// cancelled when the handler's call is. A token and a shorter timeout in `options` stay. On the loop of the handler.
//
//   auto stock = co_await warehouse.call<count_stock>(hawser::onward(context), id);
inline CallOptions onward(Context& context, CallOptions options = {}) {
  if (const auto deadline = context.deadline()) {
    const Duration left = std::max(*deadline - context.loop().now(), Duration::zero());
    options.timeout = options.timeout ? std::min(*options.timeout, left) : left;
  }
  if (!options.token.stop_possible()) options.token = context.token();
  return options;
}

}  // namespace hawser
