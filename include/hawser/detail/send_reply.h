#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>
#include <variant>

#include "hawser/codec.h"
#include "hawser/detail/const_buffers.h"
#include "hawser/detail/method_facts.h"
#include "hawser/detail/reply_sink.h"

namespace hawser::detail {

// The exception at hand as an error of `who`, such as "the handler".
Error thrown_error(std::string_view who);
// Within a catch block: answers `call`, which has no answer yet, with the exception at hand. If there is no memory for
// that either, the connection ends.
void reply_thrown(ReplySink& sink, std::uint32_t call, std::string_view who) noexcept;
// What a handler's own error is for its caller. Codes that say that the call never reached a handler, as of a call that
// the handler made itself, become ErrorCode::application: the caller would send it again, though it has run. A handler
// may answer `overloaded`, by which it says itself that it has done nothing.
Error handler_error(Error error);

// Calls `use` with the value within what a handler returned, or with nothing if that is void.
template <class R, class Use>
void with_value(const R& returned, Use use) {
  if constexpr (std::is_same_v<R, std::monostate>) {
    use();
  } else if constexpr (!is_result<R>) {
    use(returned);
  } else if constexpr (std::is_void_v<typename R::value_type>) {
    use();
  } else {
    use(*returned);
  }
}

// Sends `values` (one, or none for void) as the reply. Pieces are borrowed of `owner`, or copied without one.
template <class... V>
void send_reply(ReplySink& sink, std::uint32_t call, const codec::EncodedSize& size, const ReplyExtras& extras,
                SendCompletion* owner, const V&... values) {
  if (size.too_large || (size.pieces == 0 && extras.attachment.empty())) [[likely]] {
    std::byte* const body = sink.begin_reply(call, size, extras);
    if (body != nullptr) {
      codec::Encoder encoder(body, nullptr);
      codec::encode(encoder, values...);
      return sink.end_reply({}, owner);
    }
  } else {
    // Allocates, and so comes before the reply begins.
    ConstBuffers pieces(size.pieces);
    std::byte* const body = sink.begin_reply(call, size, extras);
    if (body != nullptr) {
      codec::Encoder encoder(body, pieces.data());
      codec::encode(encoder, values...);
      if (!extras.attachment.empty()) pieces.push({extras.attachment.data(), extras.attachment.size()});
      return sink.end_reply(pieces.span(), owner);
    }
  }
  if (owner != nullptr) owner->on_send_complete();
}

}  // namespace hawser::detail
