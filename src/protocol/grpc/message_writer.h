#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/codec/encoder.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/waiting_writer.h"
#include "hawser/error.h"
#include "hawser/stream.h"
#include "protocol/grpc/compression.h"
#include "protocol/grpc/grpc_stream.h"

// Parts of sessions that are the same on both ends.
namespace hawser::protocol::grpc {

inline constexpr std::size_t message_length_max = UINT32_MAX;

// The message that is being encoded, with its prefix.
class MessageWriter {
 public:
  // Returns memory for the body. `size` is not too large.
  std::byte* begin(GrpcStream& stream, const codec::EncodedSize& size);
  // The stream of the message. It exists from begin() to the end of the message.
  GrpcStream& stream() const noexcept { return *stream_; }
  // Length of the message.
  std::size_t bytes() const noexcept { return bytes_; }
  // Returns prefix and body, which the pieces follow. If the message is compressed, it is whole, and `pieces` is empty
  // afterwards. Encoding::identity: not compressed.
  Buffer finish(std::span<const ConstBuffer>& pieces, Encoding encoding);

 private:
  GrpcStream* stream_ = nullptr;
  Buffer head_;
  std::size_t bytes_ = 0;
};

// The reason for which a result can't be a message, or nothing.
std::optional<Error> reply_fault(const codec::EncodedSize& size, bool has_attachment);

// Gives a received message to the reader of a stream. False if it does not fit into what `account` has left.
bool deliver_item(detail::StreamCore& core, GrpcStream& stream, Bytes message, Block* block,
                  detail::ReceiveAccount& account);

// Credit that an item of that length costs.
inline std::uint32_t item_credit(std::size_t bytes) noexcept {
  constexpr std::size_t most = UINT32_MAX - detail::StreamCore::item_overhead_bytes;
  return static_cast<std::uint32_t>(bytes < most ? bytes : most) + detail::StreamCore::item_overhead_bytes;
}

}  // namespace hawser::protocol::grpc
