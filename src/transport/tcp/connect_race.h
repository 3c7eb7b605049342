#pragma once

#include <functional>

#include "base/descriptor.h"
#include "hawser/loop.h"
#include "hawser/task.h"
#include "transport/tcp/address_list.h"

namespace hawser::transport {

// Connects to one address. Dropping the task withdraws the attempt.
using ConnectAttempt = std::function<Task<Result<Descriptor>>(SocketAddress)>;

// An attempt that has not ended by then is joined by the next one (RFC 8305, section 8: 250 ms are recommended).
inline constexpr Duration connection_attempt_delay = std::chrono::milliseconds(250);

// Connects to the first of `addresses` that answers (RFC 8305, section 5): attempts begin one after the other, at once
// when the one before failed and otherwise after connection_attempt_delay; the first that succeeds ends the others. The
// error is that of the last attempt, or the list's. Gives up at `deadline`. `addresses` outlives the task.
Task<Result<Descriptor>> race_to_connect(Loop& loop, AddressList& addresses, ConnectAttempt attempt, Time deadline);

}  // namespace hawser::transport
