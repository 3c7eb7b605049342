#include "protocol/baidu_std/stream_end.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/decimal_text.h"

namespace hawser::protocol::baidu_std {

Result<std::optional<StreamEnd::Item>> StreamEnd::take_data(const StreamFrameMeta& meta, const ReceivedFrame& frame,
                                                            detail::ReceiveAccount& account,
                                                            std::size_t message_bytes_max, std::string_view limits) {
  const auto no_memory = [&] {
    return fail(ErrorCode::limit_exceeded,
                "a stream item of the peer was refused: what is received and kept would pass " + std::string(limits));
  };
  // Small items are copied, because the receive block that contains them is much larger.
  constexpr std::size_t small_bytes_max = 4096;
  if (frame.discarded) return no_memory();
  Item item;
  const bool whole = parts.empty() && !meta.has_continuation;
  const bool copies = frame.block == nullptr || frame.data.size() <= small_bytes_max || !whole;
  item.body = copies ? Buffer::copy_of(frame.data) : Buffer::share(frame.block, frame.data.data(), frame.data.size());
  if (account.bounded()) {
    const std::size_t bytes = item.body.block()->size() + detail::StreamCore::kept_item_bytes;
    const bool kept = !whole   ? parts_charge.add(account, bytes)
                      : copies ? item.body_charge.add(account, bytes)
                               : item.body_charge.keep(account, item.body);
    if (!kept) return no_memory();
  }
  if (whole) return item;
  parts_bytes += item.body.size();
  if (parts_bytes > message_bytes_max) {
    return fail(Error::of_call(Initiator::peer, ErrorCode::limit_exceeded,
                               "the parts of a stream item exceed message_bytes_max (" +
                                   count_text(message_bytes_max, "byte") + "): raise it or send less"));
  }
  parts.push_back(std::move(item.body));
  if (meta.has_continuation) return std::nullopt;
  item.body = {};
  if (account.bounded() && !item.body_charge.add(account, parts_bytes + sizeof(Block))) return no_memory();
  item.body = Buffer::allocate(std::max<std::size_t>(parts_bytes, 1)).slice(0, parts_bytes);
  std::byte* at = item.body.mutable_data();
  for (const Buffer& part : parts) {
    if (!part.empty()) std::memcpy(at, part.data(), part.size());
    at += part.size();
  }
  drop_parts();
  return item;
}

Result<void> StreamEnd::take_feedback(std::int64_t size) {
  if (size <= peer_consumed) return {};
  if (size > produced) {
    return fail(Error::of_connection(
        Initiator::peer, ErrorCode::protocol_error,
        "FEEDBACK for " + count_text(size, "byte") + " of a stream that has carried " + std::to_string(produced)));
  }
  const std::int64_t more = size - std::exchange(peer_consumed, size);
  return core == nullptr ? Result<void>() : core->on_credit(static_cast<std::uint32_t>(more));
}

Result<void> StreamEnd::take_end() {
  if (!extended) return fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error, unknown_frame));
  return core == nullptr ? Result<void>() : core->on_end();
}

bool StreamEnd::count_consumed(std::uint32_t bytes) noexcept {
  consumed += bytes;
  if (!peer_needs_feedback || !open || peer_closed) return false;
  // The peer's buffer may be smaller than feedback_bytes. When everything has been read, it may be waiting.
  if (consumed - reported < feedback_bytes && core->readable()) return false;
  reported = consumed;
  return true;
}

void StreamEnd::drop_parts() noexcept {
  parts.clear();
  parts_bytes = 0;
  parts_charge.reset();
}

}  // namespace hawser::protocol::baidu_std
