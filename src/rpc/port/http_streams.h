#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/time.h"
#include "rpc/port/body_form.h"
#include "rpc/port/port_host.h"

// HTTP requests on the streams of HTTP/2: the interfaces between the session of the connection, which knows the frames,
// and the protocol that serves the requests, which knows routes, methods and JSON.
namespace hawser::rpc {

struct HttpField {
  std::string_view name;
  std::string_view value;
};

// The part of a request before its body. The views are valid during the call.
struct HttpStreamHead {
  std::string_view method;
  std::string_view target;
  std::string_view authority;  // The field :authority.
  std::span<const HttpField> fields = {};
  bool too_large = false;  // The fields exceed the limit of the connection, and some are missing.
};

// The connection. `call` is the id of a request, which is that of its call too. Loop's thread only.
class HttpStreamHost {
 public:
  virtual detail::ReplySink& connection() noexcept = 0;
  virtual PortHost& port_host() noexcept = 0;
  virtual detail::ReceiveAccount& receive_account() noexcept = 0;
  // The reason for which the call of a request that was accepted may not begin, or nothing. A session that goes away
  // still serves such requests. `beyond`: so many calls more than ServerOptions::calls_max may be in flight.
  virtual std::optional<Error> refusal(std::size_t beyond) const = 0;
  // True if the request, which has come whole, must wait until the client has taken earlier responses:
  // HttpExchange::begin_late() follows, unless on_gone() comes before.
  virtual bool begins_later(std::uint32_t call) = 0;
  // The error for a request that cannot be kept. Counts it.
  virtual Error no_memory() = 0;
  // Runs the handler, which answers the sink of `request`: see PortSession::serve_form().
  virtual void run_method(const detail::ServedMethod& method, const detail::IncomingRequest& request,
                          const BodyForm& form) = 0;
  // Likewise of a route: calls `route.start()`.
  class Route {
   public:
    virtual void start(const detail::IncomingRequest& request, const BodyForm& form) = 0;

   protected:
    ~Route() = default;
  };
  virtual void run_route(const detail::ServedMethod& name, detail::IncomingRequest request, const BodyForm& form,
                         Route& route) = 0;
  // Count the answer of a call, and end it. That of a route counts as `code`.
  virtual void count_answer(std::uint32_t call, std::size_t bytes, ErrorCode code = ErrorCode::ok) noexcept = 0;
  // The client receives `code`.
  virtual void count_failure(std::uint32_t call, ErrorCode code, const Error& error) noexcept = 0;

  virtual void send_continue(std::uint32_t call) = 0;
  // So many bytes that on_body() held back have been used: the client may send as many again.
  virtual void return_window(std::uint32_t call, std::size_t bytes) = 0;
  // The client had to wait: its pace is measured anew.
  virtual void restart_pace() noexcept = 0;
  // The names of the fields are in lower case. `end`: the response has no body.
  virtual void send_head(std::uint32_t call, unsigned status, std::span<const HttpField> fields, bool end) = 0;
  virtual void send_body(std::uint32_t call, Buffer head, std::span<const ConstBuffer> pieces,
                         SendCompletion* owner) = 0;
  // The request has been answered: its id is not used any more. `whole`: the body is complete, otherwise the stream is
  // reset, so that the client sees that it is not.
  virtual void end_response(std::uint32_t call, bool whole) = 0;
  // True if the stream, and the connection, may queue more bytes. `bytes_max`: the stream has no room beyond it.
  virtual bool stream_has_room(std::uint32_t call, std::size_t bytes_max) const noexcept = 0;
  virtual bool connection_has_room() const noexcept = 0;

 protected:
  ~HttpStreamHost() = default;
};

// A request on a stream. Owned by HttpStreams.
class HttpExchange {
 public:
  // Returns the number of bytes that the client may send again at once; the others are held back until
  // HttpStreamHost::return_window().
  virtual std::size_t on_body(Bytes bytes) = 0;
  // False while it does not wait for the client: then the client is not slow.
  virtual bool receives() const noexcept = 0;
  virtual void on_end() = 0;
  // Runs the request: see HttpStreamHost::begins_later().
  virtual void begin_late() = 0;
  // The client has reset the stream, or the connection has ended.
  virtual void on_gone() = 0;
  // A part of the response has left the stream's queue.
  virtual void on_sent() = 0;
  // Answers with an error that came from outside of the sink of the call.
  virtual void fail_call(const Error& error) = 0;

 protected:
  ~HttpExchange() = default;
};

// The requests of one connection. Outlives its active calls.
class HttpStreams {
 public:
  virtual ~HttpStreams() = default;
  // Begins a request. Null if it has been answered: nothing of it is used any more.
  virtual HttpExchange* begin(std::uint32_t call, const HttpStreamHead& head) = 0;
  // The connection has room again.
  virtual void on_room() = 0;
  // True while requests are being converted that are not active calls yet.
  virtual bool working() const noexcept = 0;
  // The time in which a client must take something of a response that waits for it (HttpOptions::write_timeout).
  virtual Duration write_timeout() const noexcept = 0;
};

// Serves HTTP requests on the connections of other protocols. One for each server, shared by its loops.
class HttpStreamService {
 public:
  virtual std::unique_ptr<HttpStreams> open_streams(HttpStreamHost& host) const = 0;

 protected:
  ~HttpStreamService() = default;
};

}  // namespace hawser::rpc
