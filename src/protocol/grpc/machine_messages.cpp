#include <algorithm>
#include <utility>

#include "protocol/grpc/machine.h"

// Takes whole messages, compressed or not.
namespace hawser::protocol::grpc {

void Http2Machine::take_message(Http2Stream& stream) {
  if (stream.take == Http2Stream::Take::keep_one && stream.messages != 0) {
    stream.messages = 2;
    return;
  }
  ++stream.messages;
  if (stream.reader.compressed()) return take_packed(stream);
  accept_message(stream, stream.reader.message(), stream.reader.block(), {}, {});
}

void Http2Machine::accept_message(Http2Stream& stream, Bytes message, Block* block, Buffer unpacked,
                                  detail::ReceiveCharge charge) {
  if (stream.take == Http2Stream::Take::deliver) return sink_.on_message(stream, message, block);
  stream.message = message;
  stream.message_block = block;
  if (!unpacked.empty()) {
    stream.kept = std::move(unpacked);
    stream.kept_charge = std::move(charge);
  } else if (!stream.reader.memory().empty()) {
    stream.kept = stream.reader.memory();
    stream.kept_charge = stream.reader.take_charge();
  } else if (receiving_) {
    unkept_.push_back(&stream);
  } else {
    keep(stream);
  }
}

// ---- Compressed messages ----

void Http2Machine::take_packed(Http2Stream& stream) {
  const Encoding encoding = stream.fields.encoding;
  if (encoding != Encoding::gzip && encoding != Encoding::zstd) {
    return bad(stream, Error::of_call(Initiator::peer, ErrorCode::internal,
                                      "a message has the compressed flag, but grpc-encoding names no compression"));
  }
  const Bytes packed = stream.reader.message();
  const std::optional<std::size_t> announced = announced_bytes(encoding, packed);
  const std::size_t most = std::min(options_.message_bytes_max, unpacked_in_place_max);
  detail::ReceiveCharge charge;
  Result<Buffer> result;
  bool later = packed.size() > packed_in_place_max || announced.value_or(0) > most || unpacked_ >= unpacked_turn_max;
  if (!later) {
    result = decompress(encoding, packed, most, account_, charge);
    unpacked_ += result ? result->size() : most;
    later = !result && result.error().code == ErrorCode::limit_exceeded && most < options_.message_bytes_max;
  }
  if (later) {
    charge.reset();
    if (unpack_later(stream, announced)) return;
    result = decompress(encoding, packed, options_.message_bytes_max, account_, charge);
  }
  if (!result) return bad(stream, result.error());
  const std::size_t room = stream.take == Http2Stream::Take::keep_one ? stream.reader.room() : 0;
  *result = with_room(std::move(*result), room);
  accept_message(stream, result->bytes().subspan(room), result->block(), *result, std::move(charge));
}

// False: the machine must do it itself.
bool Http2Machine::unpack_later(Http2Stream& stream, std::optional<std::size_t> announced) {
  const std::size_t limit = options_.message_bytes_max;
  const Bytes packed = stream.reader.message();
  PackedMessage message{.encoding = stream.fields.encoding,
                        .bytes = {},
                        .bytes_max = std::min(announced.value_or(limit), limit),
                        .message_bytes_max = limit,
                        .room = stream.take == Http2Stream::Take::keep_one ? stream.reader.room() : 0};
  detail::ReceiveCharge charge;
  std::size_t bytes = message.bytes_max + message.room;
  if (stream.reader.memory().empty()) {
    message.bytes = Buffer::copy_of(packed);
    bytes += packed.size();
  } else {
    message.bytes = stream.reader.memory().slice(stream.reader.room(), packed.size());
    charge = stream.reader.take_charge();
  }
  if (account_ != nullptr && !charge.add(*account_, bytes)) {
    bad(stream,
        Error::of_call(ErrorCode::overloaded,
                       "a compressed message of " + std::to_string(packed.size()) + " bytes needs " +
                           std::to_string(bytes) +
                           " bytes beside it, and they do not fit into the memory for what is received and kept "
                           "(receive_bytes_max): send again later, or state the length in the compressed message"));
    return true;
  }
  stream.unpacking = true;
  if (sink_.on_packed(stream.call, std::move(message), std::move(charge))) {
    // The sink has the charge, so nothing may keep the memory for longer than the sink.
    stream.reader.drop_message();
    return true;
  }
  stream.unpacking = false;
  return false;
}

void Http2Machine::unpacked(std::uint32_t call, Result<Buffer> message) {
  Http2Stream* const stream = find(call);
  if (stream == nullptr || !std::exchange(stream->unpacking, false)) return;
  if (!receiving_) unpacked_ = 0;
  if (stream->take != Http2Stream::Take::drop) {
    if (!message) return bad(*stream, message.error());
    const std::size_t room = stream->take == Http2Stream::Take::keep_one ? stream->reader.room() : 0;
    detail::ReceiveCharge charge;
    if (account_ != nullptr && !charge.add(*account_, message->size())) {
      return bad(*stream, Error::of_call(ErrorCode::overloaded,
                                         "the decompressed message of " + std::to_string(message->size()) +
                                             " bytes does not fit into the memory for what is received and kept "
                                             "(receive_bytes_max): send again later"));
    }
    accept_message(*stream, message->bytes().subspan(room), message->block(), *message, std::move(charge));
  }
  // The stream may have ended within on_message().
  if (find(call) != stream || stream->unpacking) return;
  if (stream->stalled.empty()) {
    if (stream->remote_ended) deliver_end(*stream);
    return;
  }
  if (stream->held_bytes < options_.stream_window_bytes || stream->take != Http2Stream::Take::deliver)
    take_stalled(*stream);
}

}  // namespace hawser::protocol::grpc
