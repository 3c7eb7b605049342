#pragma once

#include <functional>

#include "base/descriptor.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "transport/tcp/address_list.h"

namespace hawser::transport {

// Connects to one address. Destroying the task cancels the attempt.
using ConnectAttempt = std::function<Task<Result<Descriptor>>(SocketAddress)>;

// If an attempt has not ended after this delay, the next one begins (RFC 8305, section 8: 250 ms are recommended).
inline constexpr Duration connection_attempt_delay = std::chrono::milliseconds(250);

// Connects to the first of `addresses` that answers (RFC 8305, section 5). Attempts begin one after the other: at once
// when the previous one failed, and otherwise after connection_attempt_delay. The first attempt that succeeds cancels
// the others. The error is that of the last attempt, or the list's. Fails at `deadline`. `addresses` outlives the task.
Task<Result<Descriptor>> race_to_connect(Loop& loop, AddressList& addresses, ConnectAttempt attempt, Time deadline);

}  // namespace hawser::transport
