#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/metadata.h"
#include "hawser/time.h"

namespace hawser {

struct Identity;

namespace detail {
struct ContextAccess;
}

// Gives a handler access to its call: properties of the request beside the arguments, and data to send beside the
// result. A handler receives it by a first parameter of type `Context&`. It lives until the handler has returned. It is
// used from the thread on which the handler runs.
class Context {
 public:
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The loop of the call's connection.
  Loop& loop() const noexcept { return request_.sink.loop(); }
  // The caller's address.
  std::string peer() const { return request_.sink.peer(); }
  // Who the caller has proved to be (hawser/identity.h): the process at the other end of a Unix socket or of shared
  // memory, the certificate of the connection, or what an interceptor found out. Valid until the handler returns.
  const Identity& identity() const noexcept { return request_.sink.identity(); }
  // The protocol of the call: "hawser", or the name of a ProtocolSpec.
  std::string_view protocol() const noexcept { return request_.sink.protocol(); }
  // Time at which the caller stops waiting; empty if the call has no deadline.
  std::optional<Time> deadline() const noexcept { return request_.deadline; }
  // Is stopped when the caller cancels the call, its deadline passes, its connection ends, or the grace of a stopping
  // server ends. A plain function that is not offloaded runs to its end before any of these can be noticed; its token
  // is never stopped.
  std::stop_token token() { return call_ == nullptr ? std::stop_token() : call_->token(); }
  // Is stopped when the server begins to stop. A handler that may take longer than the grace, such as a stream of
  // events, should end when this is stopped. token() is stopped when the grace is over. To wait for either, use an
  // AnyStop (hawser/any_stop.h). The stop is requested on the loop's thread.
  std::stop_token stopping() const noexcept { return request_.sink.stopping(); }

  // The caller's attachment and metadata. Valid until the handler returns.
  Bytes attachment() const noexcept { return request_.attachment; }
  MetadataView metadata() const noexcept { return request_.metadata; }

  // Sends `attachment` beside the result, without a copy. The reply keeps a reference to it until it has been sent.
  void set_attachment(Buffer attachment) noexcept { reply_.attachment = std::move(attachment); }
  void add_metadata(std::string key, std::string value) { reply_.add_metadata(std::move(key), std::move(value)); }
  // Keeps a reference to `buffer` until the reply has been sent, for memory that the handler's result refers to, such
  // as a std::string_view of a cache entry. Buffer::of_foreign() has a function that is called then.
  void keep_until_sent(Buffer buffer) { reply_.keep(std::move(buffer)); }

 private:
  friend struct detail::ContextAccess;
  Context(const detail::IncomingRequest& request, detail::ActiveCall* call) noexcept : request_(request), call_(call) {}

  const detail::IncomingRequest& request_;
  detail::ActiveCall* call_;
  detail::ReplyParts reply_;
};

}  // namespace hawser
