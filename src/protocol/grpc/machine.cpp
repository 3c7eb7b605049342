#include "protocol/grpc/machine.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "protocol/grpc/machine_callbacks.h"

namespace hawser::protocol::grpc {
namespace {

constexpr std::size_t slots_max = 65'535;

Error out_of_memory() { return Error::of_connection(ErrorCode::internal, "out of memory"); }

}  // namespace

Http2Machine::Http2Machine(const MachineOptions& options, MachineSink& sink, detail::ReceiveAccount* account,
                           pipe::SendQueue& output)
    : options_(options), sink_(sink), account_(account), guard_(options.flood, options.server), output_(output) {
  session_ = Callbacks::make_session(*this);
  const auto window = static_cast<std::uint32_t>(std::min<std::uint32_t>(options_.stream_window_bytes, INT32_MAX));
  std::array<nghttp2_settings_entry, 5> settings{};
  std::size_t count = 0;
  settings[count++] = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
  settings[count++] = {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, std::clamp(options_.frame_bytes_max, 16'384U, 16'777'215U)};
  settings[count++] = {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(options_.metadata_bytes_max)};
  if (options_.server) {
    settings[count++] = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, static_cast<std::uint32_t>(options_.streams_max)};
  } else {
    settings[count++] = {NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
  }
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), count);
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0,
                                        static_cast<std::int32_t>(std::min<std::uint32_t>(
                                            std::max(options_.connection_window_bytes, 65'535U), INT32_MAX)));
}

Http2Machine::~Http2Machine() {
  nghttp2_session_del(session_);
  for (const std::unique_ptr<Http2Stream>& stream : streams_) drop_output(*stream);
}

// ---- Receiving ----

Result<void> Http2Machine::receive(Bytes bytes, Block* block, Time now) {
  if (failure_) return hawser::fail(*failure_);
  now_ = now;
  receiving_ = true;
  unpacked_ = 0;
  receive_block_ = block;
  while (!bytes.empty() && receive_frames(bytes)) bytes = bytes.subspan(guard_.counted());
  receive_block_ = nullptr;
  receiving_ = false;
  try {
    keep_unkept();
  } catch (const std::bad_alloc&) {
    fail(out_of_memory());
  }
  if (failure_) return hawser::fail(*failure_);
  return {};
}

// Gives the bytes that the guard counts to nghttp2. The header of a frame is held back until it is complete, because
// the guard may disguise it. False if the connection must end.
bool Http2Machine::receive_frames(Bytes bytes) {
  std::array<std::byte, http2::FloodGuard::frame_header_bytes> held{};
  std::size_t held_bytes = guard_.header_bytes();
  std::memcpy(held.data(), guard_.header().data(), held_bytes);
  if (!guard_.receive(bytes, now_)) {
    const std::string reason(guard_.reason());
    if (guard_.code() != http2::FloodGuard::calm_code) {
      fail_as(guard_.code(), Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                                  "HTTP/2: " + std::string(nghttp2_http2_strerror(guard_.code())) +
                                                      " (" + reason + ")"));
    } else {
      fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                "the peer sends too many " + reason + " beside what is of use"));
    }
    return false;
  }
  const std::size_t kept = guard_.disguised() ? http2::FloodGuard::frame_header_bytes : guard_.header_bytes();
  const std::size_t ready = held_bytes + guard_.counted() - kept;
  held_bytes = std::min(held_bytes, ready);
  return give_frames(Bytes(held.data(), held_bytes)) && give_frames(bytes.first(ready - held_bytes)) &&
         (!guard_.disguised() || give_frames(guard_.header()));
}

bool Http2Machine::give_frames(Bytes bytes) {
  if (bytes.empty()) return true;
  const auto read =
      nghttp2_session_mem_recv(session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (read < 0 && !failure_) {
    fail(Error::of_connection(Initiator::peer,
                              read == NGHTTP2_ERR_NOMEM ? ErrorCode::internal : ErrorCode::protocol_error,
                              "HTTP/2: " + std::string(nghttp2_strerror(static_cast<int>(read)))));
  } else if (guard_.exhausted() && !failure_) {
    fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                              "the peer causes too many " + std::string(guard_.reason())));
  }
  return !failure_;
}

void Http2Machine::fail(Error why) {
  fail_as(why.code == ErrorCode::internal ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_ENHANCE_YOUR_CALM, std::move(why));
}

void Http2Machine::fail_as(std::uint32_t http2_code, Error why) {
  if (failure_) return;
  nghttp2_session_terminate_session(session_, http2_code);
  failure_ = std::move(why);
}

std::string Http2Machine::describe() const {
  return std::to_string(used_streams_) + " of " + std::to_string(options_.streams_max) + " streams open; " +
         std::to_string(nghttp2_session_get_remote_window_size(session_)) + " bytes of the peer's window left; " +
         std::to_string(nghttp2_session_get_outbound_queue_size(session_)) + " frames queued";
}

bool Http2Machine::finished() const noexcept {
  return nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
}

std::size_t Http2Machine::queued_frames() const noexcept { return nghttp2_session_get_outbound_queue_size(session_); }

void Http2Machine::consume(Http2Stream& stream, std::size_t bytes) {
  if (bytes != 0 && stream.open) nghttp2_session_consume_stream(session_, stream.id, bytes);
}

// A reference of HPACK costs the peer one byte and the server up to 4 KiB.
void Http2Machine::charge_fields(Http2Stream& stream) noexcept {
  if (account_ == nullptr) return;
  const std::size_t bytes = stream.fields.held_bytes();
  if (bytes > HeaderFields::free_bytes_max && !stream.fields_charge.add(*account_, bytes)) {
    stream.fields.refuse_memory();
  }
}

void Http2Machine::take_data(Http2Stream& stream, Bytes bytes, Block* block) {
  if (stream.take == Http2Stream::Take::plain) {
    const std::size_t returned = sink_.on_plain(stream, bytes);
    return consume(stream, returned);
  }
  const bool full = stream.take == Http2Stream::Take::deliver &&
                    (!stream.stalled.empty() || stream.held_bytes >= options_.stream_window_bytes);
  if (full || (stream.unpacking && stream.take != Http2Stream::Take::drop)) return stall(stream, bytes);
  take_bytes(stream, bytes, block);
}

// Keeps bytes behind messages that nobody has read, or that are being decompressed. The stream's window bounds them.
void Http2Machine::stall(Http2Stream& stream, Bytes bytes) {
  if (account_ != nullptr && !stream.stalled_charge.add(*account_, bytes.size())) {
    return bad(
        stream,
        Error::of_call(ErrorCode::overloaded,
                       "messages that have not been read exceed the memory for received data (receive_bytes_max): read "
                       "them sooner, or raise the limit"));
  }
  stream.stalled.append(as_text(bytes));
}

void Http2Machine::take_bytes(Http2Stream& stream, Bytes bytes, Block* block) {
  const std::size_t given = bytes.size();
  while (true) {
    if (stream.take == Http2Stream::Take::drop) {
      bytes = {};
      break;
    }
    if (stream.unpacking) break;
    if (stream.take == Http2Stream::Take::deliver && stream.held_bytes >= options_.stream_window_bytes) break;
    const MessageReader::Step step = stream.reader.next(bytes, block, options_.message_bytes_max, account_);
    if (step == MessageReader::Step::more) break;
    if (step == MessageReader::Step::message) {
      take_message(stream);
    } else if (step == MessageReader::Step::too_large) {
      bad(stream, Error::of_call(Initiator::peer, ErrorCode::limit_exceeded,
                                 "message of " + std::to_string(stream.reader.length()) +
                                     " bytes exceeds the limit of " + std::to_string(options_.message_bytes_max) +
                                     " bytes: send less, or raise message_bytes_max"));
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
  consume(stream, given - bytes.size());
  if (!bytes.empty()) stall(stream, bytes);
}

// A message that lies in the memory that is being received must be kept, because its end has not arrived yet.
void Http2Machine::keep_unkept() {
  for (std::size_t i = 0; i < unkept_.size(); ++i) {
    Http2Stream& stream = *unkept_[i];
    if (stream.message.data() != nullptr && stream.kept.block() == nullptr && !stream.end_delivered) keep(stream);
  }
  unkept_.clear();
}

void Http2Machine::keep(Http2Stream& stream) {
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

bool Http2Machine::hold_message(Http2Stream& stream) {
  if (stream.kept.block() == nullptr) keep(stream);
  return stream.take == Http2Stream::Take::keep_one;
}

void Http2Machine::bad(Http2Stream& stream, const Error& why) {
  stream.take = Http2Stream::Take::drop;
  stream.reader.reset();
  stream.message = {};
  stream.message_block = nullptr;
  stream.kept = {};
  stream.kept_charge.reset();
  consume(stream, stream.stalled.size());
  stream.stalled = {};
  stream.stalled_charge.reset();
  stream.unpacking = false;
  sink_.on_bad(stream, why);
}

void Http2Machine::end_remote(Http2Stream& stream) {
  if (std::exchange(stream.remote_ended, true)) return;
  if (stream.stalled.empty() && !stream.unpacking) deliver_end(stream);
}

void Http2Machine::deliver_end(Http2Stream& stream) {
  if (std::exchange(stream.end_delivered, true)) return;
  if (stream.take != Http2Stream::Take::drop && stream.reader.begun()) {
    return bad(stream, Error::of_call(Initiator::peer, ErrorCode::protocol_error,
                                      "the peer ended its stream within a message"));
  }
  sink_.on_end(stream);
}

void Http2Machine::release(Http2Stream& stream, std::size_t bytes) {
  stream.held_bytes -= std::min(bytes, stream.held_bytes);
  if (stream.stalled.empty() || stream.unpacking || stream.held_bytes >= options_.stream_window_bytes) return;
  if (!receiving_) unpacked_ = 0;
  take_stalled(stream);
}

void Http2Machine::take_stalled(Http2Stream& stream) {
  const std::string bytes_left = std::exchange(stream.stalled, {});
  stream.stalled_charge.reset();
  take_bytes(stream, as_bytes(bytes_left), nullptr);
  if (stream.stalled.empty() && !stream.unpacking && stream.remote_ended) deliver_end(stream);
}

// A peer may only send many PINGs if it is sent something meanwhile: gRPC's clients measure the bandwidth so.
void Http2Machine::on_peer_ping() {
  if (!options_.server || options_.ping_interval_min <= Duration::zero()) return;
  const bool soon = pinged_ && now_ - last_ping_ < options_.ping_interval_min;
  pinged_ = true;
  last_ping_ = now_;
  if (!soon || ++ping_strikes_ <= options_.ping_strikes_max) return;
  send_goaway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
  failure_ = Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                  "the client sends PINGs more often than ping_interval_min allows");
}

bool Http2Machine::reset_malformed(Http2Stream& stream) {
  if (!stream.rules.malformed()) return false;
  if (reset(stream, NGHTTP2_PROTOCOL_ERROR)) {
    static_cast<void>(guard_.take(http2::FloodGuard::invalid_frame_cost, "malformed requests"));
  }
  return true;
}

// ---- Slots ----

Http2Stream* Http2Machine::take_slot() {
  std::uint16_t slot = 0;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    if (streams_.size() >= std::min(options_.streams_max, slots_max)) return nullptr;
    slot = static_cast<std::uint16_t>(streams_.size());
    free_slots_.reserve(streams_.size() + 1);
    streams_.push_back(std::make_unique<Http2Stream>());
    streams_.back()->call = slot;
  }
  Http2Stream& stream = *streams_[slot];
  stream.call += 0x10000;
  if ((stream.call >> 16) == 0) stream.call += 0x10000;  // 0 is no generation.
  stream.open = true;
  stream.opened = now_;
  stream.fields.keep_plain = options_.server && options_.plain_requests;
  ++used_streams_;
  return &stream;
}

void Http2Machine::release_stream(Http2Stream& stream) noexcept {
  if (!std::exchange(stream.busy, false)) return;
  if (!stream.open) recycle(stream);
}

void Http2Machine::recycle(Http2Stream& stream) noexcept {
  stream.id = 0;
  stream.waiting_fields.clear();
  stream.fields.clear();
  stream.fields_charge.reset();
  stream.rules = {};
  stream.headers_seen = false;
  stream.take = Http2Stream::Take::drop;
  stream.reader.reset();
  stream.messages = 0;
  stream.message = {};
  stream.message_block = nullptr;
  stream.kept = {};
  stream.kept_charge.reset();
  stream.held_bytes = 0;
  if (!stream.stalled.empty()) stream.stalled = {};
  stream.stalled_charge.reset();
  stream.remote_ended = stream.end_delivered = stream.unpacking = false;
  stream.plain = stream.discards = stream.discards_long = false;
  stream.discarded_bytes = 0;
  stream.headers_sent = stream.deferred = stream.ending = stream.ended = stream.breaks = stream.resetting = false;
  stream.out_taken = stream.checked_taken = 0;
  stream.checked_wanted = 0;
  stream.send_encoding = Encoding::identity;
  stream.initial.clear();
  stream.trailers.clear();
  stream.status.clear();
  stream.status_text.clear();
  free_slots_.push_back(static_cast<std::uint16_t>(stream.call & 0xFFFF));
  --used_streams_;
}

void Http2Machine::close_stream(Http2Stream& stream, std::uint32_t http2_code) {
  if (!std::exchange(stream.open, false)) return;
  if (std::exchange(stream.waiting, false)) {
    --waiting_count_;
  } else if (!options_.server) {
    --submitted_;
  }
  if (header_stream_ == &stream) header_stream_ = nullptr;
  drop_output(stream);
  const bool busy = stream.busy;  // If it is, release_stream() recycles the stream, perhaps within on_closed().
  sink_.on_closed(stream, http2_code);
  if (!busy) recycle(stream);
}

// ---- The connection ----

void Http2Machine::close_all(const Error& why) {
  if (!failure_) failure_ = why;
  for_each([&](Http2Stream& stream) { close_stream(stream, NGHTTP2_CANCEL); });
}

void Http2Machine::ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

void Http2Machine::announce_goaway() {
  nghttp2_submit_shutdown_notice(session_);
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, Callbacks::goaway_ping.data());
}

void Http2Machine::send_goaway(std::uint32_t http2_code, std::string_view text) {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_), http2_code,
                        reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace hawser::protocol::grpc
