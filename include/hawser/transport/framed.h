#pragma once

#include <memory>

#include "hawser/transport/connection.h"
#include "hawser/transport/stream.h"
#include "hawser/transport/transport.h"

namespace hawser::transport {

// A connection whose messages are sent over `stream`, each behind a prefix with the sizes of its head and its payload.
// A transport that is a reliable, ordered byte stream needs no Connection of its own. `stream` has not been started:
// the connection starts it on `loop`, which runs on this thread. `limits` are the arguments of
// TransportWorker::select() or accept().
std::unique_ptr<Connection> make_framed_connection(Loop& loop, std::unique_ptr<Stream> stream,
                                                   const MessageLimits& limits);

}  // namespace hawser::transport
