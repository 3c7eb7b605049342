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

namespace detail {
struct ContextAccess;
}

// What a handler can know of its call beside the arguments, and what it can send beside the result. A handler asks for
// it by a first parameter `Context&`; it lives until the handler has returned. Used by the thread that the handler runs
// on.
class Context {
 public:
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // The loop that the call's connection lives on.
  Loop& loop() const noexcept { return request_.sink.loop(); }
  // The caller's address.
  std::string peer() const { return request_.sink.peer(); }
  // When the caller stops waiting; empty if it waits for ever.
  std::optional<Time> deadline() const noexcept { return request_.deadline; }
  // Is stopped when the caller cancels, its deadline passes, its connection ends, or the server stops. For a plain
  // function, which runs to its end before any of that can be noticed, it never is.
  std::stop_token token() { return call_ == nullptr ? std::stop_token() : call_->token(); }
  // Is stopped when the server begins to stop: what may take longer than the grace, such as a stream of events, ends
  // itself then. token() follows when the grace is over. A wait for either takes an AnyStop (hawser/any_stop.h).
  // Requested on the loop's thread.
  std::stop_token stopping() const noexcept { return request_.sink.stopping(); }

  // What the caller sent beside the arguments; valid until the handler returns.
  Bytes attachment() const noexcept { return request_.attachment; }
  MetadataView metadata() const noexcept { return request_.metadata; }

  // To be sent beside the result, uncopied.
  void set_attachment(Buffer attachment) noexcept { attachment_ = std::move(attachment); }
  void add_metadata(std::string key, std::string value) {
    reply_metadata_.emplace_back(std::move(key), std::move(value));
  }

 private:
  friend struct detail::ContextAccess;
  Context(const detail::IncomingRequest& request, detail::ActiveCall* call) noexcept : request_(request), call_(call) {}

  const detail::IncomingRequest& request_;
  detail::ActiveCall* call_;
  Buffer attachment_;
  Metadata reply_metadata_;
};

}  // namespace hawser
