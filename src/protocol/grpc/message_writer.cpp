#include "protocol/grpc/message_writer.h"

#include <cstring>
#include <string>

#include "protocol/grpc/message_reader.h"

namespace hawser::protocol::grpc {
namespace {

constexpr std::size_t prefix_bytes = MessageReader::prefix_bytes;
// Items up to this size are copied, so that they do not hold the block into which they were received.
constexpr std::size_t copied_item_bytes_max = 4096;

void write_prefix(std::byte* to, std::size_t bytes, bool compressed) noexcept {
  to[0] = compressed ? std::byte{1} : std::byte{0};
  for (unsigned i = 0; i < 4; ++i) to[1 + i] = static_cast<std::byte>(bytes >> (24 - 8 * i));
}

}  // namespace

std::optional<Error> reply_fault(const codec::EncodedSize& size, bool has_attachment) {
  if (size.too_large) return Error::of_call(size.code, std::string("the result can't be encoded: ") + size.why_not);
  if (size.body + size.payload > message_length_max) {
    return Error::of_call(ErrorCode::limit_exceeded, "the result exceeds 4 GiB");
  }
  if (has_attachment) {
    return Error::of_call(ErrorCode::internal, "the handler has set an attachment: gRPC has none");
  }
  return std::nullopt;
}

std::byte* MessageWriter::begin(GrpcStream& stream, const codec::EncodedSize& size) {
  stream_ = &stream;
  head_ = Buffer::allocate(prefix_bytes + size.body);
  bytes_ = size.body + size.payload;
  write_prefix(head_.mutable_data(), bytes_, false);
  return head_.mutable_data() + prefix_bytes;
}

Buffer MessageWriter::finish(std::span<const ConstBuffer>& pieces, Encoding encoding) {
  Buffer head = std::move(head_);
  if (encoding == Encoding::identity) [[likely]]
    return head;
  Buffer whole = Buffer::allocate(bytes_);
  std::byte* at = whole.mutable_data();
  std::memcpy(at, head.data() + prefix_bytes, head.size() - prefix_bytes);
  at += head.size() - prefix_bytes;
  for (const ConstBuffer& piece : pieces) {
    if (piece.size != 0) std::memcpy(at, piece.data, piece.size);
    at += piece.size;
  }
  const Result<Buffer> packed = compress(encoding, whole.bytes());
  if (!packed) return head;
  head = Buffer::allocate(prefix_bytes + packed->size());
  write_prefix(head.mutable_data(), packed->size(), true);
  std::memcpy(head.mutable_data() + prefix_bytes, packed->data(), packed->size());
  pieces = {};
  return head;
}

bool deliver_item(detail::StreamCore& core, GrpcStream& stream, Bytes message, Block* block,
                  detail::ReceiveAccount& account) {
  detail::StreamCore::Item item;
  const bool copied = block == nullptr || message.size() <= copied_item_bytes_max;
  item.body = copied ? Buffer::copy_of(message) : Buffer::share(block, message.data(), message.size());
  const std::size_t overhead = detail::StreamCore::kept_item_bytes;
  if (account.bounded() && !(copied ? item.body_charge.add(account, item.body.size() + overhead)
                                    : item.body_charge.keep(account, item.body))) {
    return false;
  }
  item.compressed = stream.reader.compressed();
  stream.held_bytes += item_credit(message.size());
  static_cast<void>(core.on_item(std::move(item)));
  return true;
}

}  // namespace hawser::protocol::grpc
