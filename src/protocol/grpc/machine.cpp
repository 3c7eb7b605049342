#include "protocol/grpc/machine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/decimal_text.h"
#include "protocol/grpc/header_values.h"
#include "protocol/http2/error_codes.h"
#include "protocol/http2/header_block.h"

namespace hawser::protocol::grpc {
namespace {

// Longest grpc-message, encoded. nginx takes 4 KiB of response headers. Clients of gRPC take 8 KiB, and fail
// some of the calls that have more.
constexpr std::size_t status_text_bytes_max = 3072;

// Adds metadata; binary values are encoded, and pairs that HTTP/2 can't carry are left out.
void add_metadata_to(http2::HeaderBlock& block, const Metadata& metadata) {
  for (const auto& [name, value] : metadata) {
    if (!is_metadata_name(name) || is_reserved_name(name)) continue;
    if (is_binary_name(name)) {
      block.add_owned(name, base64_encode(value));
    } else if (is_plain_value(value)) {
      block.add(name, value);
    }
  }
}

// Adds the fields that end a response.
void add_status_to(http2::HeaderBlock& block, const GrpcStream& stream) {
  block.add_named("grpc-status", stream.status);
  if (!stream.status_text.empty()) block.add_named("grpc-message", stream.status_text);
}

}  // namespace

GrpcMachine::GrpcMachine(const MachineOptions& options, MachineSink& sink, detail::ReceiveAccount* account,
                         pipe::SendQueue& output)
    : Http2Connection(options.connection, output, *Callbacks::table(), &Callbacks::read),
      message_bytes_max_(options.message_bytes_max),
      keeps_plain_(options.connection.server && options.plain_requests),
      sink_(sink),
      account_(account),
      streams_(options.connection.streams_max) {}

GrpcMachine::~GrpcMachine() {
  for_each([&](GrpcStream& stream) { drop_output(stream); });
}

std::string GrpcMachine::describe() const {
  return std::to_string(streams_.used()) + " of " + count_text(options().streams_max, "stream") + " open; " +
         Http2Connection::describe();
}

// ---- Streams ----

GrpcStream* GrpcMachine::take_stream() {
  GrpcStream* const stream = streams_.take(now());
  if (stream != nullptr) stream->fields.keep_plain = keeps_plain_;
  return stream;
}

void GrpcMachine::release_stream(GrpcStream& stream) noexcept {
  if (!std::exchange(stream.busy, false)) return;
  if (!stream.open) return recycle(stream);
  if (stream.unpacking == GrpcStream::Unpacking::held) drop_input(stream);  // Nobody releases it any more.
}

void GrpcMachine::recycle(GrpcStream& stream) noexcept {
  stream.restart();
  streams_.put_back(stream);
}

void GrpcMachine::close_stream(http2::Http2Stream& closed, std::uint32_t http2_code) {
  if (!begin_close(closed)) return;
  GrpcStream& stream = static_cast<GrpcStream&>(closed);
  const bool busy = stream.busy;  // If it is, release_stream() recycles the stream, perhaps within on_closed().
  sink_.on_closed(stream, http2_code);
  if (!busy) recycle(stream);
}

void GrpcMachine::close_all(const Error& why) {
  give_up(why);
  for_each([&](GrpcStream& stream) { close_stream(stream, http2::cancel); });
}

// ---- Receiving ----

Result<void> GrpcMachine::receive(Bytes bytes, Block* block, Time now) {
  if (!failure()) {
    unpacked_ = 0;
    receive_bytes(bytes, block, now);
    try {
      keep_unkept();
    } catch (const std::bad_alloc&) {
      fail(Error::of_connection(ErrorCode::internal, "out of memory"));
    }
  }
  if (failure()) return hawser::fail(*failure());
  return {};
}

std::size_t GrpcMachine::add_field(GrpcStream& stream, std::string_view name, std::string_view value) {
  stream.fields.add(name, value, options().metadata_bytes_max);
  return stream.fields.list_bytes;
}

bool GrpcMachine::drop_interim(GrpcStream& stream) noexcept {
  if (stream.fields.http_status < 100 || stream.fields.http_status >= 200) return false;
  stream.fields.clear();
  return true;
}

void GrpcMachine::on_head(GrpcStream& stream) {
  if (options().server) charge_fields(stream);
  sink_.on_headers(stream);
}

// A reference of HPACK costs the peer one byte and the server up to 4 KiB.
void GrpcMachine::charge_fields(GrpcStream& stream) noexcept {
  if (account_ == nullptr) return;
  const std::size_t bytes = stream.fields.held_bytes();
  if (bytes > HeaderFields::free_bytes_max && !stream.fields_charge.add(*account_, bytes)) {
    stream.fields.refuse_memory();
  }
}

void GrpcMachine::on_data(GrpcStream& stream, Bytes bytes, Block* block) {
  if (stream.take == GrpcStream::Take::plain) {
    const std::size_t returned = sink_.on_plain(stream, bytes);
    return return_window(stream, returned);
  }
  const bool full = stream.take == GrpcStream::Take::deliver &&
                    (!stream.stalled.empty() || stream.held_bytes >= options().stream_window_bytes);
  if (full || (stream.unpacks() && stream.take != GrpcStream::Take::drop)) return stall(stream, bytes);
  take_bytes(stream, bytes, block);
}

// Keeps bytes behind messages that nobody has read, or that are being decompressed. The stream's window bounds them.
void GrpcMachine::stall(GrpcStream& stream, Bytes bytes) {
  if (account_ != nullptr && !stream.stalled_charge.add(*account_, bytes.size())) {
    return bad(
        stream,
        Error::of_call(ErrorCode::overloaded,
                       "messages that have not been read exceed the memory for received data (receive_bytes_max): read "
                       "them sooner, or raise the limit"));
  }
  stream.stalled.append(as_text(bytes));
}

void GrpcMachine::take_bytes(GrpcStream& stream, Bytes bytes, Block* block) {
  const std::size_t given = bytes.size();
  while (true) {
    if (stream.take == GrpcStream::Take::drop) {
      bytes = {};
      break;
    }
    if (stream.unpacks()) break;
    if (stream.take == GrpcStream::Take::deliver && stream.held_bytes >= options().stream_window_bytes) break;
    const MessageReader::Step step = stream.reader.next(bytes, block, message_bytes_max_, account_);
    if (step == MessageReader::Step::more) break;
    if (step == MessageReader::Step::message) {
      take_message(stream);
    } else if (step == MessageReader::Step::too_large) {
      bad(stream,
          Error::of_call(Initiator::peer, ErrorCode::limit_exceeded,
                         "message of " + count_text(stream.reader.length(), "byte") + " exceeds the limit of " +
                             count_text(message_bytes_max_, "byte") + ": send less, or raise message_bytes_max"));
    } else if (step == MessageReader::Step::no_memory) {
      bad(stream,
          Error::of_call(
              ErrorCode::overloaded,
              "the message does not fit into the memory for what is received and kept (receive_bytes_max): send "
              "again later"));
    } else {
      bad(stream, Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                                 "a message begins with a flag other than 0 and 1"));
    }
  }
  return_window(stream, given - bytes.size());
  if (!bytes.empty()) stall(stream, bytes);
}

// A message that lies in the memory that is being received must be kept, because its end has not arrived yet.
void GrpcMachine::keep_unkept() {
  for (std::size_t i = 0; i < unkept_.size(); ++i) {
    GrpcStream& stream = *unkept_[i];
    if (stream.message.data() != nullptr && stream.kept.block() == nullptr && !stream.end_delivered) keep(stream);
  }
  unkept_.clear();
}

void GrpcMachine::keep(GrpcStream& stream) {
  constexpr std::size_t copied_max = 16 * 1024;  // A shorter message is not worth the receive block that it lies in.
  if (stream.message.empty()) return;
  const bool copied = stream.message.size() <= copied_max || stream.message_block == nullptr;
  stream.kept = copied ? Buffer::copy_of(stream.message)
                       : Buffer::share(stream.message_block, stream.message.data(), stream.message.size());
  stream.message = stream.kept.bytes();
  stream.message_block = stream.kept.block();
  if (account_ == nullptr) return;
  if (copied ? stream.kept_charge.add(*account_, stream.kept.size(), stream.kept.size() <= held_bytes_least)
             : stream.kept_charge.keep(*account_, stream.kept)) {
    return;
  }
  bad(stream,
      Error::of_call(
          ErrorCode::overloaded,
          "the message does not fit into the memory for what is received and kept (receive_bytes_max): send again "
          "later"));
}

bool GrpcMachine::hold_message(GrpcStream& stream) {
  if (stream.kept.block() == nullptr) keep(stream);
  return stream.take == GrpcStream::Take::keep_one;
}

void GrpcMachine::bad(GrpcStream& stream, const Error& why) {
  drop_input(stream);
  sink_.on_bad(stream, why);
}

void GrpcMachine::drop_input(GrpcStream& stream) noexcept {
  stream.take = GrpcStream::Take::drop;
  stream.reader.reset();
  stream.message = {};
  stream.message_block = nullptr;
  stream.kept = {};
  stream.kept_charge.reset();
  return_window(stream, stream.stalled.size());
  stream.stalled = {};
  stream.stalled_charge.reset();
  stream.unpacking = GrpcStream::Unpacking::no;
}

void GrpcMachine::on_remote_end(GrpcStream& stream) {
  if (std::exchange(stream.remote_ended, true)) return;
  if (stream.stalled.empty() && !stream.unpacks()) deliver_end(stream);
}

void GrpcMachine::deliver_end(GrpcStream& stream) {
  if (std::exchange(stream.end_delivered, true)) return;
  if (stream.take != GrpcStream::Take::drop && stream.reader.begun()) {
    return bad(stream, Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                                      "the peer ended its stream within a message"));
  }
  sink_.on_end(stream);
}

void GrpcMachine::release(GrpcStream& stream, std::size_t bytes) {
  stream.held_bytes -= std::min(bytes, stream.held_bytes);
  if (stream.stalled.empty() || stream.unpacks() || stream.held_bytes >= options().stream_window_bytes) return;
  if (!receiving()) unpacked_ = 0;
  take_stalled(stream);
}

void GrpcMachine::take_stalled(GrpcStream& stream) {
  const std::string bytes_left = std::exchange(stream.stalled, {});
  stream.stalled_charge.reset();
  take_bytes(stream, as_bytes(bytes_left), nullptr);
  if (stream.stalled.empty() && !stream.unpacks() && stream.remote_ended) deliver_end(stream);
}

void GrpcMachine::take_message(GrpcStream& stream) {
  if (stream.take == GrpcStream::Take::keep_one && stream.messages != 0) {
    stream.messages = 2;
    return;
  }
  ++stream.messages;
  if (stream.reader.compressed()) return take_packed(stream);
  accept_message(stream, stream.reader.message(), stream.reader.block(), {}, {});
}

void GrpcMachine::accept_message(GrpcStream& stream, Bytes message, Block* block, Buffer unpacked,
                                 detail::ReceiveCharge charge) {
  if (stream.take == GrpcStream::Take::deliver) {
    charge.reset();  // The receiver of the item pays for what it keeps.
    return sink_.on_message(stream, message, block);
  }
  stream.message = message;
  stream.message_block = block;
  if (!unpacked.empty()) {
    stream.kept = std::move(unpacked);
    stream.kept_charge = std::move(charge);
  } else if (!stream.reader.memory().empty()) {
    stream.kept = stream.reader.memory();
    stream.kept_charge = stream.reader.take_charge();
  } else if (receiving()) {
    unkept_.push_back(&stream);
  } else {
    keep(stream);
  }
}

// ---- Compressed messages ----

void GrpcMachine::take_packed(GrpcStream& stream) {
  const Encoding encoding = stream.fields.encoding;
  if (encoding != Encoding::gzip && encoding != Encoding::zstd) {
    return bad(stream, Error::of_call(Initiator::peer, ErrorCode::internal,
                                      "a message has the compressed flag, but grpc-encoding names no compression"));
  }
  const Bytes packed = stream.reader.message();
  if (options().server && stream.take == GrpcStream::Take::keep_one) {
    return accept_message(stream, packed, stream.reader.block(), {}, {});
  }
  Buffer memory;
  detail::ReceiveCharge charge;
  if (!stream.reader.memory().empty()) {
    memory = stream.reader.memory();
    charge = stream.reader.take_charge();
    stream.reader.drop_message();
  }
  if (sink_.may_unpack(stream)) return unpack_message(stream, packed, std::move(memory), std::move(charge));
  hold_packed(stream, packed, std::move(memory), std::move(charge));
}

// Keeps the message until release_packed().
void GrpcMachine::hold_packed(GrpcStream& stream, Bytes packed, Buffer memory, detail::ReceiveCharge charge) {
  if (memory.empty()) {
    memory = Buffer::copy_of(packed);
    if (account_ != nullptr && !charge.add(*account_, packed.size())) {
      return bad(stream, Error::of_call(ErrorCode::overloaded,
                                        "a compressed message of " + count_text(packed.size(), "byte") +
                                            " does not fit into the memory for what is received and kept "
                                            "(receive_bytes_max): send again later"));
    }
  }
  stream.kept = std::move(memory);
  stream.kept_charge = std::move(charge);
  stream.reader.drop_message();
  stream.unpacking = GrpcStream::Unpacking::held;
}

bool GrpcMachine::release_packed(std::uint32_t call) {
  GrpcStream* const stream = find(call);
  if (stream == nullptr || stream->unpacking != GrpcStream::Unpacking::held) return false;
  stream->unpacking = GrpcStream::Unpacking::no;
  if (!receiving()) unpacked_ = 0;
  Buffer memory = std::exchange(stream->kept, {});
  const Bytes packed = memory.bytes();
  unpack_message(*stream, packed, std::move(memory), std::move(stream->kept_charge));
  continue_behind_packed(call);
  const GrpcStream* const after = find(call);
  return after != nullptr && after->unpacking == GrpcStream::Unpacking::held;
}

// `memory`, for which `charge` pays, holds the message; empty: it lies in the memory that is being received.
void GrpcMachine::unpack_message(GrpcStream& stream, Bytes packed, Buffer memory, detail::ReceiveCharge charge) {
  const Encoding encoding = stream.fields.encoding;
  const std::optional<std::size_t> announced = announced_bytes(encoding, packed);
  const std::size_t most = std::min(message_bytes_max_, unpacked_in_place_max);
  detail::ReceiveCharge result_charge;
  Result<Buffer> result;
  bool later = packed.size() > packed_in_place_max || announced.value_or(0) > most || unpacked_ >= unpacked_turn_max;
  if (!later) {
    result = decompress(encoding, packed, most, account_, result_charge);
    unpacked_ += result ? result->size() : most;
    later = !result && result.error().code == ErrorCode::limit_exceeded && most < message_bytes_max_;
  }
  if (later) {
    result_charge.reset();
    if (unpack_later(stream, packed, memory, charge, announced)) return;
    result = decompress(encoding, packed, message_bytes_max_, account_, result_charge);
  }
  if (!result) return bad(stream, result.error());
  accept_message(stream, result->bytes(), result->block(), *result, std::move(result_charge));
}

// False: the machine must do it itself.
bool GrpcMachine::unpack_later(GrpcStream& stream, Bytes packed, Buffer& memory, detail::ReceiveCharge& charge,
                               std::optional<std::size_t> announced) {
  const std::size_t limit = message_bytes_max_;
  const std::size_t bytes_max = std::min(announced.value_or(limit), limit);
  const std::size_t bytes = bytes_max + (memory.empty() ? packed.size() : 0);
  if (account_ != nullptr && !charge.add(*account_, bytes)) {
    if (sink_.waits_for_memory(stream.call)) {
      hold_packed(stream, packed, std::move(memory), std::move(charge));
      return true;
    }
    bad(stream,
        Error::of_call(ErrorCode::overloaded,
                       "a compressed message of " + count_text(packed.size(), "byte") + " needs " +
                           count_text(bytes, "byte") +
                           " beside it, and they do not fit into the memory for what is received and kept "
                           "(receive_bytes_max): send again later, or state the length in the compressed message"));
    return true;
  }
  PackedMessage message{.encoding = stream.fields.encoding,
                        .bytes = memory.empty() ? Buffer::copy_of(packed) : memory,
                        .bytes_max = bytes_max,
                        .message_bytes_max = limit};
  stream.unpacking = GrpcStream::Unpacking::elsewhere;
  if (sink_.on_packed(stream.call, std::move(message), std::move(charge))) {
    // The sink has the charge, so nothing may keep the memory for longer than the sink.
    stream.reader.drop_message();
    return true;
  }
  stream.unpacking = GrpcStream::Unpacking::no;
  return false;
}

void GrpcMachine::unpacked(std::uint32_t call, Result<Buffer> message) {
  GrpcStream* const stream = find(call);
  if (stream == nullptr || stream->unpacking != GrpcStream::Unpacking::elsewhere) return;
  stream->unpacking = GrpcStream::Unpacking::no;
  if (!receiving()) unpacked_ = 0;
  if (stream->take != GrpcStream::Take::drop) {
    if (!message) return bad(*stream, message.error());
    detail::ReceiveCharge charge;
    if (account_ != nullptr && !charge.add(*account_, message->size())) {
      return bad(*stream, Error::of_call(ErrorCode::overloaded,
                                         "the decompressed message of " + count_text(message->size(), "byte") +
                                             " does not fit into the memory for what is received and kept "
                                             "(receive_bytes_max): send again later"));
    }
    accept_message(*stream, message->bytes(), message->block(), *message, std::move(charge));
  }
  continue_behind_packed(call);
}

void GrpcMachine::continue_behind_packed(std::uint32_t call) {
  // The stream may have ended within on_message().
  GrpcStream* const stream = find(call);
  if (stream == nullptr || stream->unpacks()) return;
  if (stream->stalled.empty()) {
    if (stream->remote_ended) deliver_end(*stream);
    return;
  }
  if (stream->held_bytes < options().stream_window_bytes || stream->take != GrpcStream::Take::deliver)
    take_stalled(*stream);
}

// ---- Sending ----

GrpcStream* GrpcMachine::begin_request(std::span<const Field> fields) {
  GrpcStream* const stream = take_stream();
  if (stream == nullptr || open_request(*stream, fields)) return stream;
  stream->open = false;
  recycle(*stream);
  return nullptr;
}

void GrpcMachine::submit_headers(GrpcStream& stream, bool end) {
  if (stream.headers_sent || !stream.open) return;
  http2::HeaderBlock block;
  block.add_literal(":status", "200");
  block.add_literal("content-type", "application/grpc");
  if (stream.send_encoding != Encoding::identity) {
    block.add_literal("grpc-encoding", to_string(stream.send_encoding));
  }
  add_metadata_to(block, stream.initial);
  if (end) {
    add_status_to(block, stream);
    if (stream.fields.encoding == Encoding::unknown) block.add_literal("grpc-accept-encoding", accepted_encodings);
    add_metadata_to(block, stream.trailers);
  }
  submit_response(stream, block, !end);
}

int GrpcMachine::send_trailers(const GrpcStream& stream) {
  http2::HeaderBlock block;
  add_status_to(block, stream);
  add_metadata_to(block, stream.trailers);
  return submit_trailers(stream, block);
}

void GrpcMachine::send_message(GrpcStream& stream, Buffer head, std::span<const ConstBuffer> pieces,
                               SendCompletion* owner, std::uint32_t credit) {
  if (!queue_body(stream, std::move(head), pieces, owner, credit)) return;
  if (options().server) submit_headers(stream, false);
  resume(stream);
}

void GrpcMachine::send_status(GrpcStream& stream, int status, std::string_view text) {
  if (!stream.open || stream.ending) return;
  stream.ending = true;
  stream.status = std::to_string(status);
  stream.status_text = percent_encode(text, status_text_bytes_max);
  if (!stream.headers_sent) return submit_headers(stream, true);
  resume(stream);
}

void GrpcMachine::copy_and_release(SendCompletion& owner) {
  output().copy_and_release(owner);
  for_each([&](GrpcStream& stream) { stream.out.copy_and_release(owner); });
}

}  // namespace hawser::protocol::grpc
