#include "hawser/reply.h"

#include <cstring>

namespace hawser::detail {
namespace {

constexpr std::size_t small_bytes_max = 4096;

// Moves a view: its bytes were at `begin` and are now at `now`.
Bytes moved(Bytes view, const std::byte* begin, const std::byte* now) noexcept {
  return {now + (view.data() - begin), view.size()};
}

}  // namespace

bool keep_reply(const Received& from, MutableBytes memory, ReplyStorage& storage, Received& kept) {
  kept = from;
  const Bytes metadata = from.metadata.bytes();
  const std::byte* const begin = metadata.empty() ? from.body.data() : metadata.data();
  const auto head_bytes = static_cast<std::size_t>(from.body.data() + from.body.size() - begin);
  storage.head = head_bytes <= small_bytes_max ? Buffer::copy_of(Bytes(begin, head_bytes))
                                               : Buffer::keep(from.head_block, begin, head_bytes);
  kept.body = moved(from.body, begin, storage.head.data());
  if (!metadata.empty()) kept.metadata = MetadataView(storage.head.bytes().first(metadata.size()));

  const std::size_t payload_bytes = from.payload.size() + from.attachment.size();
  if (payload_bytes == 0) return true;
  const std::byte* const payload = from.payload.empty() ? from.attachment.data() : from.payload.data();
  const std::byte* now = payload;
  if (payload == memory.data() && payload_bytes <= memory.size()) {
    return true;  // The payload was received into this memory already.
  }
  if (!memory.empty()) {
    if (payload_bytes > memory.size()) return false;
    std::memcpy(memory.data(), payload, payload_bytes);
    now = memory.data();
  } else {
    storage.payload = payload_bytes <= small_bytes_max ? Buffer::copy_of(Bytes(payload, payload_bytes))
                                                       : Buffer::keep(from.payload_block, payload, payload_bytes);
    now = storage.payload.data();
  }
  if (!from.payload.empty()) kept.payload = moved(from.payload, payload, now);
  if (!from.attachment.empty()) kept.attachment = moved(from.attachment, payload, now);
  return true;
}

}  // namespace hawser::detail
