#pragma once

#include <cstddef>

#include "hawser/bytes.h"

// Memory in which a message reaches the peer without a copy; not part of hawser.h. docs/transports/shared-memory.md.
namespace hawser {

class Client;
class Context;

// Returns a Buffer of `bytes` bytes, uninitialised, for one large argument, attachment, item or result. Over shared
// memory it lies in the memory that both processes share, if there is room. If the large arguments and the attachment
// of a call are one view that begins where the Buffer begins, the peer reads the bytes where they were written.
// Otherwise they are copied, as from ordinary memory. The Buffer is ordinary memory over other transports, without a
// connection, on another thread than the connection's, up to ShmOptions::eager_bytes, and while the application has
// half of the slab (ShmOptions::slab_bytes) on loan.
//
// Once the Buffer was passed to a call, nobody may change its bytes, also after the call has ended: the peer may keep
// the message and read it. So take another loan for each message. A Buffer that is sent again while the peer still has
// it is copied. The peer can read and change the bytes at any time, also before they are sent.
//
// The Buffer may outlive its connection, its client and its server, and any thread may release it. It keeps the memory
// of its connection mapped. Throws std::bad_alloc if there is no memory. The client's thread.
Buffer loan(const Client& client, std::size_t bytes);
// The same for the reply of a handler: return a view of it, or pass it to Context::set_attachment(). For a view, pass
// the Buffer to Context::keep_until_sent(). The thread on which the handler runs.
Buffer loan(const Context& context, std::size_t bytes);

}  // namespace hawser
