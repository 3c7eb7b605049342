#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/call.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "hawser/protocols.h"
#include "hawser/task.h"
#include "hawser/time.h"

// A protocol of your own on the port of a Server, beside the others: docs/protocols/custom.md.
namespace hawser {

// The server's end of a connection of a CustomProtocol. CustomProtocol::serve receives and sends with it, and the
// server does the rest: TLS, limits, memory, slow peers, counters, the end. Lives until the coroutine has ended.
// Loop's thread only. At most one coroutine receives at a time. A send() of at most 64 KiB is queued as one piece, so
// that several coroutines may send; longer ones must not run at the same time.
class ProtocolConnection {
 public:
  ProtocolConnection(const ProtocolConnection&) = delete;
  ProtocolConnection& operator=(const ProtocolConnection&) = delete;

  // Waits until `least` bytes or more are there, and returns all bytes that have arrived and were not consumed. The
  // view is valid until consume() or the next function that receives. A wait with no byte there is a wait for the next
  // message: idle_timeout limits it, and a server that stops ends it. Errors: unavailable if the connection has ended,
  // protocol_error if it ended within a message, limit_exceeded if `least` exceeds ServerOptions::message_bytes_max.
  virtual Task<Result<Bytes>> receive(std::size_t least = 1) = 0;
  // The first `bytes` bytes of what receive() returned are not needed any more. At most as many as it returned.
  virtual void consume(std::size_t bytes) noexcept = 0;
  // Receives and consumes exactly memory.size() bytes, without a copy of those that have not arrived yet. Part of a
  // message: `memory` is the application's and is not bounded. Errors as of receive(). What had come is lost then.
  virtual Task<Result<void>> receive_into(MutableBytes memory) = 0;
  // Receives and consumes up to the next `end`, such as "\r\n", and returns the bytes before it. Errors as of
  // receive(), and limit_exceeded if the first bytes_max bytes have no end.
  virtual Task<Result<std::string>> receive_until(std::string_view end, std::size_t bytes_max) = 0;

  // Sends a copy of the bytes at the end of the loop's tick, also after receive() has failed at the end of the client's
  // direction, at idle_timeout or at the stop of the server. Waits while more than send_backlog_bytes_max bytes wait
  // for the peer. Error: unavailable if the connection has ended.
  virtual Task<Result<void>> send(Bytes bytes) = 0;
  Task<Result<void>> send(std::string_view text) { return send(as_bytes(text)); }

  // Calls the handler F of this server as a client would: `Result<R> reply = co_await connection.call<f>(args...)`.
  // Interceptors run, counters count, limits hold; there is no network between. A call with streams fails with
  // invalid_argument. The end of the connection stops the handler's token.
  template <auto F, class... Given>
  [[nodiscard]] auto call(Given&&... arguments) {
    return Call<F, detail::NoOptions, Given...>(link(), {}, {std::forward<Given>(arguments)...});
  }
  // `timeout`, `token`, `attachment` and `metadata` count. There is no deadline without `timeout`.
  template <auto F, class... Given>
  [[nodiscard]] auto call(CallOptions options, Given&&... arguments) {
    return Call<F, CallOptions, Given...>(link(), std::move(options), {std::forward<Given>(arguments)...});
  }

  Loop& loop() noexcept { return sink_.loop(); }
  std::string peer() const { return sink_.peer(); }
  // Who the client has proved to be by TLS or a Unix socket. Valid as long as the connection.
  const Identity& identity() const noexcept { return sink_.identity(); }
  // Is stopped when the connection has ended. The coroutine should end soon then.
  virtual std::stop_token token() const noexcept = 0;
  // Is stopped when the server begins to stop.
  std::stop_token stopping() const noexcept { return sink_.stopping(); }

 protected:
  explicit ProtocolConnection(detail::ReplySink& sink) noexcept : sink_(sink) {}
  ~ProtocolConnection() = default;
  virtual detail::ClientLink& link() noexcept = 0;

 private:
  detail::ReplySink& sink_;
};

// A protocol that a server speaks on its port: `server.enable(CustomProtocol{...})`. Protocols are asked in the order
// in which they were enabled. The functions are called by all loops of the server at once.
struct CustomProtocol {
  // A short name without spaces for pages, metrics and logs.
  std::string name;
  // Its name in the ALPN of TLS. Empty: it has none.
  std::string alpn = {};

  // `more`: the bytes may be the beginning of this protocol. It counts as `no` once 24 bytes are there. Without bytes
  // from the client no protocol is recognised: the client speaks first.
  enum class Match : unsigned char { no, more, yes };
  // Decides by the first bytes of a connection, at most 24, which may come one at a time: the first `yes` wins, also
  // while an earlier protocol needs more. Must not throw, and must answer the same bytes alike.
  std::function<Match(Bytes first)> match;
  // A match for a protocol whose connections begin with these bytes, at most 24.
  static std::function<Match(Bytes first)> begins_with(std::string prefix);

  // Serves one connection from its first byte on. At its end, what was sent is delivered and the connection closes. An
  // exception is logged and closes it at once.
  std::function<Task<void>(ProtocolConnection& connection)> serve;

  // The longest wait of receive() with no byte there, and of a connection before its first byte (see
  // ServerOptions::handshake_timeout). `forever`: not limited.
  Duration idle_timeout = std::chrono::seconds(75);
  // The time for which the coroutine goes on after the client has ended its direction, counted from the last byte that
  // the client took. 0: its calls are stopped at once.
  Duration half_closed_timeout = std::chrono::seconds(5);
  // The bytes that a client understands as a refusal of its connection, for the reason `why`. Empty: it is closed.
  std::function<std::string(const Error& why)> refusal = {};

  // Throws std::logic_error if name, match or serve is missing.
  operator ProtocolSpec() const;
};

}  // namespace hawser
