#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "hawser/codec.h"
#include "hawser/detail/const_buffers.h"
#include "hawser/detail/method_facts.h"
#include "hawser/detail/reply_sink.h"

namespace hawser::detail {

// Describes the current exception.
std::string exception_text();
// For catch blocks: answers `call` of `method`, which has no answer yet, with the current exception, which left `part`.
// If there is not enough memory for that, the connection ends. See ReplySink::exception_error().
void reply_thrown(ReplySink& sink, std::uint32_t call, std::string_view method, std::string_view part) noexcept;
// The same while the request exists: the line in the log has its trace.
void reply_thrown(const IncomingRequest& request, std::string_view method, std::string_view part) noexcept;
// Converts an error that a handler returned to the error for its caller. Some codes state that the call did not reach a
// handler; a handler may pass on such an error of a call that it made itself. They become ErrorCode::application,
// because the caller would otherwise send a call again that has run. `overloaded` stays, and the error of
// unimplemented(): the handler states that it has done nothing.
Error handler_error(Error error);

// Calls `use` with the value in a handler's result, or without arguments if the result is void.
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

// send_reply() with pieces or an attachment. Apart from it, since short replies need fewer registers.
template <class... V>
[[gnu::noinline]] void send_reply_in_pieces(ReplySink& sink, std::uint32_t call, const codec::EncodedSize& size,
                                            const ReplyExtras& extras, SendCompletion* owner, const V&... values) {
  // Allocated before begin_reply(), because it may throw.
  ConstBuffers pieces(size.pieces);
  std::byte* const body = sink.begin_reply(call, size, extras);
  if (body != nullptr) {
    codec::Encoder encoder(body, pieces.data());
    codec::encode_all(encoder, values...);
    if (!extras.attachment.empty()) pieces.push({extras.attachment.data(), extras.attachment.size()});
    return sink.end_reply(pieces.span(), owner);
  }
  if (owner != nullptr) owner->on_send_complete();
}

// Sends `values` (one, or none for void) as the reply. Pieces are on loan from `owner`, or copied if it is null.
template <class... V>
void send_reply(ReplySink& sink, std::uint32_t call, const codec::EncodedSize& size, const ReplyExtras& extras,
                SendCompletion* owner, const V&... values) {
  if (!size.too_large && (size.pieces != 0 || !extras.attachment.empty())) [[unlikely]]
    return send_reply_in_pieces(sink, call, size, extras, owner, values...);
  std::byte* const body = sink.begin_reply(call, size, extras);
  if (body != nullptr) [[likely]] {
    codec::Encoder encoder(body, nullptr);
    codec::encode_all(encoder, values...);
    return sink.end_reply({}, owner);
  }
  if (owner != nullptr) owner->on_send_complete();
}

}  // namespace hawser::detail
