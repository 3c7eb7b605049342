#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/detail/interceptor_function.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/loop.h"
#include "hawser/metadata.h"
#include "hawser/reply.h"
#include "hawser/task.h"
#include "hawser/time.h"

// Interceptors: coroutines that run around each call of a server (Server::use()) or of a client (Client::use()).
// docs/interceptors.md.
namespace hawser {

namespace rpc {
class Interception;
class InterceptedCall;
}  // namespace rpc

namespace detail {

// A chain of interceptors, as a Next sees it. `level` 0 is the first interceptor.
class NextTarget {
 public:
  virtual Task<Result<void>> enter_level(std::size_t level) = 0;

 protected:
  ~NextTarget() = default;
};
struct NextLink {
  NextTarget* target = nullptr;  // Null once the call has ended.
};

}  // namespace detail

// Continues a call: runs the interceptors that follow and then the handler. The result is that of the call: an error if
// the handler or a later interceptor returned one. A server's interceptor calls it once. A client's interceptor may
// call it again (OutgoingCall::may_repeat()). Other calls, and a call after the interceptor has ended, return an error.
// The task may be destroyed before it has ended: the handler ends then as it does when its caller goes away. Used on
// the loop of the call.
class Next {
 public:
  Next(std::shared_ptr<detail::NextLink> link, std::size_t level) noexcept : link_(std::move(link)), level_(level) {}
  Task<Result<void>> operator()();

 private:
  std::shared_ptr<detail::NextLink> link_;
  std::size_t level_;
};

// A call of a server, as its interceptors see it. Valid until the outermost interceptor has ended. Used on the loop of
// the call's connection.
class IncomingCall {
 public:
  IncomingCall(const IncomingCall&) = delete;
  IncomingCall& operator=(const IncomingCall&) = delete;

  // The name of the method, such as "package.Service/Method". For a route of HTTP, method and path: "GET /users/7".
  std::string_view method() const noexcept { return method_; }
  // The same, but with the path of the route: "GET /users/{id}". The server has a bounded number of them, so it is the
  // name for spans and metrics.
  std::string_view route() const noexcept { return route_.empty() ? method_ : route_; }
  // "hawser", "grpc", "http", "baidu_std".
  std::string_view protocol() const noexcept { return call_.sink().protocol(); }
  // True if the caller or the handler sends a stream. The call lasts until both have ended.
  bool streams() const noexcept { return streams_; }
  Loop& loop() const noexcept { return call_.sink().loop(); }
  std::string peer() const { return call_.sink().peer(); }
  // Time at which the request was complete, or a stream's first part.
  Time begin() const noexcept { return begin_; }
  std::optional<Time> deadline() const noexcept { return call_.request().deadline; }
  // Stopped when the caller does not wait any more: it cancelled, its deadline passed, or its connection ended.
  std::stop_token token() { return call_.token(); }
  // Stopped when the server begins to stop.
  std::stop_token stopping() const noexcept { return call_.sink().stopping(); }
  // Bytes of the arguments with their attachment, encoded. A stream's items are not counted. Arguments that came
  // compressed or as JSON become the arguments behind the last interceptor, and count as they came until then.
  std::size_t request_bytes() const noexcept;
  // Bytes of the result with its attachment, after next(). 0 if the call failed.
  std::size_t reply_bytes() const noexcept { return reply_bytes_; }

  // Who the caller has proved to be: what set_identity() was given, or else what the connection proves.
  const Identity& identity() const noexcept { return identity_ ? *identity_ : call_.sink().identity(); }
  // For authentication: later interceptors and Context::identity() see it. Call it before next().
  void set_identity(Identity identity) { identity_.emplace(std::move(identity)); }

  // Metadata of the request, as the handler will see it. Valid until it is changed.
  MetadataView metadata() const noexcept {
    return changed_ ? MetadataView(metadata_.bytes()) : call_.request().metadata;
  }
  // Replaces all entries of that key by one. Call it before next(). Fails with limit_exceeded beyond the limits of
  // Metadata; the metadata is unchanged then.
  Result<void> set_metadata(std::string_view key, std::string_view value) { return change(key, &value); }
  // Removes all entries of that key, such as a credential that the handler must not see.
  void remove_metadata(std::string_view key) { static_cast<void>(change(key, nullptr)); }
  // Sends metadata with the result, behind that of the handler. Errors carry no metadata.
  void add_reply_metadata(std::string key, std::string value) {
    reply_metadata_.emplace_back(std::move(key), std::move(value));
  }

  // For the library. The request, whose metadata may have been changed since, and whose body may have become the
  // arguments.
  const detail::IncomingRequest& request() const noexcept { return call_.request(); }
  // Makes reply_checksum() the CRC32C of the encoded result and its attachment, after next(). Call it before next().
  void checksum_reply() noexcept { checksum_wanted_ = true; }
  std::uint32_t reply_checksum() const noexcept { return reply_checksum_; }
  // The streams of the call; null if it has none. Lives as long as this object.
  detail::StreamCore* stream_core() const noexcept { return call_.stream_if_open(); }
  // The random number that skips() was given.
  detail::CallDraw& draw() noexcept { return draw_; }
  // `method` and `route` live as long as this object.
  IncomingCall(detail::ActiveCall& call, std::string_view method, bool streams, detail::CallDraw draw,
               std::string_view route = {});
  const Metadata& reply_metadata() const noexcept { return reply_metadata_; }

 private:
  friend class rpc::Interception;
  Result<void> change(std::string_view key, const std::string_view* value);

  detail::ActiveCall& call_;
  const std::string_view method_;
  const std::string_view route_;
  const bool streams_;
  const Time begin_;
  detail::CallDraw draw_;
  std::size_t reply_bytes_ = 0;
  std::uint32_t reply_checksum_ = 0;
  bool checksum_wanted_ = false;
  std::optional<Identity> identity_;
  bool changed_ = false;  // metadata_ replaces that of the request.
  Buffer metadata_;
  Metadata reply_metadata_;
};

// A call of a server that all interceptors have skipped, as it ends. A function object with skips() may also have
//   void skipped(const SkippedCall& call) const noexcept;
// It is called when the answer of such a call is an error, when the call is dropped, and when the result comes in a
// later tick than the request. It is called on the loops, by several threads at once. It must not block, and must not
// destroy or stop a client, a server or a loop. The views and the object are valid until it returns.
class SkippedCall {
 public:
  SkippedCall(const SkippedCall&) = delete;
  SkippedCall& operator=(const SkippedCall&) = delete;

  // As those of IncomingCall.
  std::string_view method() const noexcept { return method_; }
  std::string_view route() const noexcept { return route_.empty() ? method_ : route_; }
  std::string_view protocol() const noexcept { return request_.sink.protocol(); }
  std::string peer() const { return request_.sink.peer(); }
  MetadataView metadata() const noexcept { return request_.metadata; }
  std::size_t request_bytes() const noexcept {
    return request_.body.size() + request_.payload.size() + request_.attachment.size();
  }
  std::size_t reply_bytes() const noexcept { return reply_bytes_; }
  // From the tick in which the request was complete to that of the answer. 0 if it is the same tick.
  Duration duration() const noexcept { return duration_; }
  // Null if the call has a result. `cancelled` for a call that was dropped.
  const Error* error() const noexcept { return error_; }

  // For the library. What the arguments refer to outlives this object.
  SkippedCall(const detail::IncomingRequest& request, std::string_view method, Duration duration,
              std::size_t reply_bytes, const Error* error, std::string_view route = {}) noexcept
      : request_(request),
        method_(method),
        route_(route),
        duration_(duration),
        reply_bytes_(reply_bytes),
        error_(error) {}

 private:
  const detail::IncomingRequest& request_;
  const std::string_view method_;
  const std::string_view route_;
  const Duration duration_;
  const std::size_t reply_bytes_;
  const Error* const error_;
};

// A call of a client, as its interceptors see it. Valid until the outermost interceptor has ended. Used on the loop of
// the client.
class OutgoingCall {
 public:
  OutgoingCall(const OutgoingCall&) = delete;
  OutgoingCall& operator=(const OutgoingCall&) = delete;

  // The name of the method, such as "package.Service/Method".
  std::string_view method() const noexcept { return method_; }
  // "hawser", "grpc", "baidu_std".
  std::string_view protocol() const noexcept { return protocol_; }
  // The address that connect() was given.
  std::string_view peer() const noexcept { return peer_; }
  // True if the caller or the handler sends a stream. The call lasts until both have ended.
  bool streams() const noexcept { return streams_; }
  Loop& loop() const noexcept { return loop_; }
  // Time at which the call began.
  Time begin() const noexcept { return begin_; }
  std::optional<Time> deadline() const noexcept { return deadline_; }
  // CallOptions::idempotent.
  bool idempotent() const noexcept { return options_.idempotent; }
  // Bytes of the arguments with their attachment, encoded. A stream's items are not counted.
  std::size_t request_bytes() const noexcept { return request_bytes_; }
  // Bytes of the reply with its attachment, after next(). 0 if the call failed.
  std::size_t reply_bytes() const noexcept { return reply_bytes_; }
  // Number of requests that were passed to the connection.
  unsigned attempts() const noexcept { return attempts_; }
  // True if next() may be called again after it has returned: the request was not executed, or the call is idempotent.
  // Calls with streams are not repeated once their request was sent, nor calls that are not awaited in place
  // (Client::send_request()), since their arguments may not exist any more. Otherwise next() sends nothing and returns
  // the outcome that it returned before.
  bool may_repeat() const noexcept;

  // Metadata of the request.
  const Metadata& metadata() const noexcept { return options_.metadata; }
  // The value of the first entry of that key.
  std::optional<std::string_view> find_metadata(std::string_view key) const noexcept;
  // Replaces all entries of that key by one. Call it before next(). next() fails with limit_exceeded if the limits of
  // Metadata are exceeded.
  void set_metadata(std::string_view key, std::string_view value);
  void remove_metadata(std::string_view key);
  // Metadata of the reply, after next(). Empty if the call failed.
  MetadataView reply_metadata() const noexcept { return MetadataView(reply_metadata_.bytes()); }

 private:
  friend class rpc::InterceptedCall;
  OutgoingCall(std::string_view method, std::string_view protocol, std::string_view peer, Loop& loop)
      : method_(method), protocol_(protocol), peer_(peer), loop_(loop), begin_(loop.now()) {}

  const std::string_view method_;
  const std::string_view protocol_;
  const std::string peer_;
  Loop& loop_;
  const Time begin_;
  std::optional<Time> deadline_;
  bool streams_ = false;
  bool arguments_exist_ = true;  // The request can be encoded.
  bool repeatable_ = true;       // Nothing was executed.
  unsigned attempts_ = 0;
  std::size_t request_bytes_ = 0;
  std::size_t reply_bytes_ = 0;
  CallOptions options_;
  Buffer reply_metadata_;
};

// An interceptor for ClientOptions::interceptors, thus also for ClientPool and BlockingClient, and for
// GrpcClientOptions::interceptors. The clients that share it call it on their loops, several at the same time.
template <class F>
std::shared_ptr<detail::Interceptor<OutgoingCall>> client_interceptor(F interceptor) {
  return std::make_shared<detail::FunctionInterceptor<OutgoingCall, F>>(std::move(interceptor));
}

}  // namespace hawser
