#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/task.h"
#include "hawser/time.h"
#include "hawser/transport/stream.h"
#include "transport/path_proof.h"

namespace hawser::transport {

// Protects the byte streams of servers. ServerOptions::security holds one. Loops and servers share it: thread-safe.
class ServerSecurity {
 public:
  virtual ~ServerSecurity() = default;

  // Called when a server starts. An error keeps the server from starting.
  virtual Result<void> prepare() = 0;

  // `more`: the bytes may be the beginning of a protected stream.
  enum class Match : std::uint8_t { no, more, yes };
  virtual Match match(Bytes first) const noexcept = 0;

  // Returns the protected stream above `stream`, which runs on `loop`, is paused, and from which `first` has been
  // received. Its start() begins the handshake; StreamSink::ended() reports a failure. `protocols` are the names of the
  // protocols that the server speaks, as ALPN lists them on the wire.
  virtual std::unique_ptr<Stream> protect(Loop& loop, std::unique_ptr<Stream> stream, Bytes first,
                                          const std::string& protocols) = 0;

  // Empty if a connection over the unprotected `stream` is served; otherwise the reason, which names the remedy.
  virtual std::string refusal_of_plain(const Stream& stream) const = 0;
  // Empty if other transports may carry the messages of a connection that was agreed on over `secured`, a stream that
  // protect() returned and whose handshake is complete; otherwise the reason. A literal.
  virtual std::string_view stream_only(const Stream& secured) const noexcept = 0;
  // The least protection of the messages on other transports that this side accepts. Never `none`.
  virtual PathProtection path_protection() const noexcept = 0;
  // Makes the protection of this side of a path that was agreed on over such a stream. The streams of both sides must
  // be those of one connection.
  virtual Result<PathSecurity> secure_path(Stream& secured, const PathTerms& terms) = 0;
};

// Protects the byte streams of clients. ClientOptions::security holds one. Thread-safe, and outlives its tasks.
class ClientSecurity {
 public:
  virtual ~ClientSecurity() = default;

  // Performs the handshake over `stream`, a connection to `address` that has not been started, until `deadline`. The
  // result is a stream on `loop` with the peer that the options demand; start() on the same loop begins to receive.
  // `protocol` is the name of the client's protocol in ALPN; empty: none is offered.
  virtual Task<Result<std::unique_ptr<Stream>>> protect(Loop& loop, std::unique_ptr<Stream> stream, std::string address,
                                                        std::string_view protocol, Time deadline) = 0;
  // The same text for objects that demand and prove the same: a digest of all options, and of the files as they are
  // now. No secret can be derived from it. Empty: each object has an identity of its own. Reads the files. Any thread.
  virtual std::string identity() const { return {}; }
  // As in ServerSecurity.
  virtual std::string_view stream_only(const Stream& secured) const noexcept = 0;
  virtual PathProtection path_protection() const noexcept = 0;
  virtual Result<PathSecurity> secure_path(Stream& secured, const PathTerms& terms) = 0;
};

}  // namespace hawser::transport
