#pragma once

#include "hawser/bytes.h"
#include "hawser/transport/stream.h"

namespace hawser::pipe {

// Returns the memory that receives discarded bytes. Nobody reads it, so all connections of a thread share it.
MutableBytes discard_buffer() noexcept;

// Receives the notifications of a stream between the end of its owner and the end of the stream. Ignores them.
transport::StreamSink& null_sink() noexcept;

}  // namespace hawser::pipe
