#pragma once

#include <memory>
#include <string>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/transport/stream.h"

namespace hawser {
class Loop;
}

// TLS for programs that serve byte streams of their own, such as a protocol whose TLS begins in the midst of a
// connection (STARTTLS). A TlsServer (hawser/tls.h) converts to the ServerSecurity.
namespace hawser::transport {

class ServerSecurity;

// Reads the files of the certificates. Called before the other functions; a further call after one that succeeded does
// nothing. An error names the file.
Result<void> prepare(ServerSecurity& security);

// Empty if a connection over the unprotected `stream` is served; otherwise the reason, which names the remedy.
std::string refusal_of_plain(const ServerSecurity& security, const Stream& stream);

// Returns the server's end of TLS above `stream`, which runs on `loop`, is paused, and from which `first` has been
// received. Its start() begins the handshake; StreamSink::ended() reports a failure. finish() of `stream` is called
// when it has accepted everything, after finish() of the result. Loop's thread.
std::unique_ptr<Stream> protect(ServerSecurity& security, Loop& loop, std::unique_ptr<Stream> stream, Bytes first);

}  // namespace hawser::transport
