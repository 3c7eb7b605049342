#pragma once

#include "hawser/bytes.h"
#include "hawser/context.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/metadata.h"

namespace hawser::detail {

// The parts of a Context that only the library uses.
struct ContextAccess {
  // `call` is null for a plain function, which cannot be cancelled while it runs.
  static Context make(const IncomingRequest& request, ActiveCall* call) noexcept { return Context(request, call); }
  static ReplySink& reply_sink(const Context& context) noexcept { return context.request_.sink; }
  static const IncomingRequest& request(const Context& context) noexcept { return context.request_; }
  static std::uint32_t call(const Context& context) noexcept { return context.request_.call; }
  static ReplyParts& reply(Context& context) noexcept { return context.reply_; }
};

}  // namespace hawser::detail
