#include "block/nbd/reply.h"

#include <algorithm>
#include <cerrno>

#include "block/nbd/protocol.h"

namespace hawser::block::nbd {
namespace {

std::byte* store_chunk(std::byte* at, const NbdRequest& request, std::uint16_t type,
                       std::size_t payload_bytes) noexcept {
  at = store(at, structured_reply_magic);
  at = store(at, chunk::done_flag);
  at = store(at, type);
  at = store(at, request.cookie);
  return store(at, static_cast<std::uint32_t>(payload_bytes));
}

std::string chunk_head(const NbdRequest& request, std::uint16_t type, std::size_t payload_bytes) {
  std::byte head[20];
  store_chunk(head, request, type, payload_bytes);
  return std::string(as_text(head));
}

std::byte* store_simple(std::byte* at, const NbdRequest& request, std::uint32_t error) noexcept {
  at = store(at, simple_reply_magic);
  at = store(at, error);
  return store(at, request.cookie);
}

}  // namespace

ReplyHead ReplyHead::success(const NbdRequest& request) noexcept {
  ReplyHead head;
  head.size_ = static_cast<std::size_t>(store_simple(head.short_.data(), request, status::ok) - head.short_.data());
  return head;
}

ReplyHead ReplyHead::data(const NbdRequest& request, bool structured) noexcept {
  if (!structured) return success(request);
  ReplyHead head;
  std::byte* at = store_chunk(head.short_.data(), request, chunk::offset_data, sizeof(std::uint64_t) + request.length);
  at = store(at, request.offset);
  head.size_ = static_cast<std::size_t>(at - head.short_.data());
  return head;
}

ReplyHead ReplyHead::failure(const NbdRequest& request, bool structured, std::uint32_t error, std::string_view text) {
  ReplyHead head;
  if (!structured) {
    head.size_ = static_cast<std::size_t>(store_simple(head.short_.data(), request, error) - head.short_.data());
    return head;
  }
  text = text.substr(0, error_text_bytes_max);
  head.long_ = chunk_head(request, chunk::error, sizeof(std::uint32_t) + sizeof(std::uint16_t) + text.size());
  append(head.long_, error);
  append(head.long_, static_cast<std::uint16_t>(text.size()));
  head.long_ += text;
  return head;
}

ReplyHead ReplyHead::block_status(const NbdRequest& request, const std::vector<Extent>& extents) {
  std::string descriptors;
  std::uint64_t left = request.length;
  const std::size_t count = (request.flags & command_flag::one_extent) != 0 ? 1 : extents.size();
  for (std::size_t i = 0; i < count && left > 0; ++i) {
    const std::uint64_t bytes = std::min(extents[i].bytes, left);
    append(descriptors, static_cast<std::uint32_t>(bytes));
    append(descriptors, extents[i].state);
    left -= bytes;
  }
  ReplyHead head;
  head.long_ = chunk_head(request, chunk::block_status, sizeof(allocation_context_id) + descriptors.size());
  append(head.long_, allocation_context_id);
  head.long_ += descriptors;
  return head;
}

std::uint32_t status_of(const Error& error) noexcept {
  if (error.code == ErrorCode::permission_denied || error.code == ErrorCode::unauthenticated) {
    return status::not_permitted;
  }
  if (error.code != ErrorCode::application) return status::io;
  switch (error.application_code) {
    case EPERM:
    case EACCES:
    case EROFS: return status::not_permitted;
    case ENOMEM: return status::no_memory;
    case EINVAL: return status::invalid;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return status::no_space;
    case EOVERFLOW: return status::overflow;
    case EOPNOTSUPP: return status::not_supported;
    case ESHUTDOWN: return status::shutdown;
    default: return status::io;
  }
}

}  // namespace hawser::block::nbd
