#include "hawser/reply.h"

#include <cstring>

namespace hawser::detail {
namespace {

constexpr std::size_t small_bytes_max = 4096;

// Copies short data, and shares `block`, which may be null, for longer data.
Buffer keep_bytes(Block* block, const std::byte* data, std::size_t bytes) {
  return bytes <= small_bytes_max ? Buffer::copy_of(Bytes(data, bytes)) : Buffer::keep(block, data, bytes);
}

// The attachment lies behind the payload.
[[gnu::noinline]] bool keep_payload(Received& reply, MutableBytes memory, ReplyStorage& storage) {
  const std::byte* const begin = reply.payload.empty() ? reply.attachment.data() : reply.payload.data();
  const std::size_t bytes = reply.payload.size() + reply.attachment.size();
  if (begin == memory.data() && bytes <= memory.size()) return true;  // It was received into this memory already.
  Bytes kept;
  if (!memory.empty()) {
    if (bytes > memory.size()) return false;
    std::memcpy(memory.data(), begin, bytes);
    kept = memory.first(bytes);
  } else {
    storage.payload = keep_bytes(reply.payload_block, begin, bytes);
    kept = storage.payload.bytes();
  }
  if (!reply.payload.empty()) reply.payload = kept.first(reply.payload.size());
  if (!reply.attachment.empty()) reply.attachment = kept.last(reply.attachment.size());
  return true;
}

}  // namespace

// The body lies behind the metadata.
bool keep_reply(Received& reply, MutableBytes memory, ReplyStorage& storage) {
  const Bytes metadata = reply.metadata.bytes();
  const std::byte* const begin = metadata.empty() ? reply.body.data() : metadata.data();
  storage.head = keep_bytes(reply.head_block, begin, metadata.size() + reply.body.size());
  const Bytes kept = storage.head.bytes();
  reply.body = kept.last(reply.body.size());
  if (!metadata.empty()) reply.metadata = MetadataView(kept.first(metadata.size()));
  return (reply.payload.empty() && reply.attachment.empty()) || keep_payload(reply, memory, storage);
}

}  // namespace hawser::detail
