#include "protocol/http2/connection.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "protocol/http2/header_block.h"

namespace hawser::protocol::http2 {
namespace {

// A longer header list ends the connection. A list between its limit and this bound is decoded and not kept, because
// the streams behind it need the state of HPACK. The bound is above each metadata_bytes_max.
constexpr std::size_t list_bytes_hard_max = std::size_t{256} << 10;
// nghttp2 ends the connection if more PING or SETTINGS frames wait for their acknowledgement.
constexpr std::size_t queued_acks_max = 200;
constexpr std::size_t settings_entries_max = 32;
// A call that its caller resets sooner was not useful work.
constexpr Duration waited_min = std::chrono::milliseconds(5);
// The payload of the PING behind the first step of GOAWAY. Others, which test the connection, have zeros.
constexpr std::array<std::uint8_t, 8> goaway_ping = {'g', 'o', ' ', 'a', 'w', 'a', 'y', '.'};
// Debug data of GOAWAY beyond this bound are not kept.
constexpr std::size_t debug_text_bytes_max = 512;

std::string_view debug_text(const nghttp2_goaway& goaway) noexcept {
  return {reinterpret_cast<const char*>(goaway.opaque_data), std::min(goaway.opaque_data_len, debug_text_bytes_max)};
}

}  // namespace

Http2Connection::Http2Connection(const Http2Options& options, pipe::SendQueue& output,
                                 const nghttp2_session_callbacks& callbacks, nghttp2_data_source_read_callback read)
    : options_(options),
      output_(output),
      read_(read),
      guard_(options.flood, options.server),
      pings_(options.server ? options.ping_interval_min : Duration::zero(), options.ping_strikes_max) {
  session_ = make_session(callbacks);
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

nghttp2_session* Http2Connection::make_session(const nghttp2_session_callbacks& callbacks) {
  nghttp2_option* raw_option = nullptr;
  if (nghttp2_option_new(&raw_option) != 0) throw std::bad_alloc();
  const std::unique_ptr<nghttp2_option, decltype(&nghttp2_option_del)> option(raw_option, &nghttp2_option_del);
  nghttp2_option_set_no_auto_window_update(raw_option, 1);
  nghttp2_option_set_no_closed_streams(raw_option, 1);
  if (options_.server) nghttp2_option_set_no_http_messaging(raw_option, 1);  // Http2Stream::rules.
  nghttp2_option_set_max_outbound_ack(raw_option, queued_acks_max);
  nghttp2_option_set_max_settings(raw_option, settings_entries_max);
  // The guard counts resets by its own tokens. This is the second line.
  nghttp2_option_set_stream_reset_rate_limit(raw_option, 100'000, 50'000);

  nghttp2_session* session = nullptr;
  const int status = options_.server ? nghttp2_session_server_new2(&session, &callbacks, this, raw_option)
                                     : nghttp2_session_client_new2(&session, &callbacks, this, raw_option);
  if (status != 0) throw std::bad_alloc();
  return session;
}

Http2Connection::~Http2Connection() { nghttp2_session_del(session_); }

// ---- Receiving ----

void Http2Connection::receive_bytes(Bytes bytes, Block* block, Time now) {
  now_ = now;
  receiving_ = true;
  receive_block_ = block;
  while (!bytes.empty() && receive_frames(bytes)) bytes = bytes.subspan(guard_.counted());
  receive_block_ = nullptr;
  receiving_ = false;
}

// Gives the bytes that the guard counts to nghttp2. The header of a frame is held back until it is complete, because
// the guard may disguise it. False if the connection must end.
bool Http2Connection::receive_frames(Bytes bytes) {
  std::array<std::byte, FloodGuard::frame_header_bytes> held{};
  std::size_t held_bytes = guard_.header_bytes();
  std::memcpy(held.data(), guard_.header().data(), held_bytes);
  if (!guard_.receive(bytes, now_)) {
    const std::string reason(guard_.reason());
    if (guard_.code() != FloodGuard::calm_code) {
      fail_as(guard_.code(), Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                                  "HTTP/2: " + std::string(nghttp2_http2_strerror(guard_.code())) +
                                                      " (" + reason + ")"));
    } else {
      fail(Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                "the peer sends too many " + reason + " beside what is of use"));
    }
    return false;
  }
  const std::size_t kept = guard_.disguised() ? FloodGuard::frame_header_bytes : guard_.header_bytes();
  const std::size_t ready = held_bytes + guard_.counted() - kept;
  held_bytes = std::min(held_bytes, ready);
  return give_frames(Bytes(held.data(), held_bytes)) && give_frames(bytes.first(ready - held_bytes)) &&
         (!guard_.disguised() || give_frames(guard_.header()));
}

bool Http2Connection::give_frames(Bytes bytes) {
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

void Http2Connection::fail(Error why) {
  fail_as(why.code == ErrorCode::internal ? NGHTTP2_INTERNAL_ERROR : NGHTTP2_ENHANCE_YOUR_CALM, std::move(why));
}

void Http2Connection::fail_as(std::uint32_t http2_code, Error why) {
  if (failure_) return;
  nghttp2_session_terminate_session(session_, http2_code);
  failure_ = std::move(why);
}

// ErrorCode::internal without a text.
void Http2Connection::fail_without_memory() noexcept {
  failure_.emplace();
  failure_->scope = ErrorScope::connection;
}

void Http2Connection::give_up(const Error& why) {
  if (!failure_) failure_ = why;
}

void Http2Connection::return_window(const Http2Stream& stream, std::size_t bytes) {
  if (bytes != 0 && stream.open) nghttp2_session_consume_stream(session_, stream.id, bytes);
}

// Checks a field of the header block that is being received. Returns false if the field is ignored.
bool Http2Connection::uses_field(std::string_view name, std::string_view& value, bool trailers) noexcept {
  Http2Stream* const stream = incoming_.stream;
  if (!options_.server) return stream != nullptr;
  if (!name.starts_with(':')) value = RequestRules::without_spaces(value);
  return stream != nullptr && stream->rules.add(name, value, trailers) && !trailers;
}

void Http2Connection::check_list(std::size_t list_bytes) {
  if (list_bytes <= list_bytes_hard_max) return;
  fail(Error::of_connection(Initiator::peer, ErrorCode::limit_exceeded,
                            "a header list of more than " + std::to_string(list_bytes_hard_max) +
                                " bytes: the limit, which SETTINGS announced, is metadata_bytes_max (" +
                                std::to_string(options_.metadata_bytes_max) + ")"));
}

// Server: checks the rules at the end of a header block. False if the request is malformed: its stream is reset.
bool Http2Connection::end_block(Http2Stream& stream, const nghttp2_frame& frame) {
  const bool head = frame.headers.cat == NGHTTP2_HCAT_REQUEST;
  const bool end = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (head) stream.rules.end_head();
  if (!head && !end) stream.rules.fail();
  if (end) stream.rules.end();
  return !reset_malformed(stream);
}

// A frame of DATA has ended the peer's direction. False if that makes the request malformed.
bool Http2Connection::end_body(Http2Stream& stream) {
  if (options_.server) stream.rules.end();
  return !reset_malformed(stream);
}

// Returns the stream that uses the data, or null if nobody does.
Http2Stream* Http2Connection::accept_data(std::int32_t id, std::size_t bytes) {
  // The window of the connection is returned at once: a call whose handler is slow must not stop the others.
  nghttp2_session_consume_connection(session_, bytes);
  Http2Stream* const stream = stream_of(session_, id);
  if (stream != nullptr && options_.server) stream->rules.add_body(bytes);
  if (stream != nullptr && !reset_malformed(*stream)) return stream;
  nghttp2_session_consume_stream(session_, id, bytes);
  return nullptr;
}

void Http2Connection::count_discarded(Http2Stream& stream, std::size_t bytes) {
  if (stream.discards && (stream.discarded_bytes += bytes) > discarded_bytes_max) reset(stream, NGHTTP2_NO_ERROR);
}

// Resets the stream of a request that is malformed, and returns true if it is.
bool Http2Connection::reset_malformed(Http2Stream& stream) {
  if (!stream.rules.malformed()) return false;
  if (reset(stream, NGHTTP2_PROTOCOL_ERROR)) {
    static_cast<void>(guard_.take(FloodGuard::invalid_frame_cost, "malformed requests"));
  }
  return true;
}

// The client gives up a call that it has waited for. The calls of a connection are bounded, so that it can't do this
// often.
void Http2Connection::on_peer_reset(std::int32_t id) {
  const Http2Stream* const stream = stream_of(session_, id);
  if (stream != nullptr && now_ - stream->opened >= waited_min) guard_.give(FloodGuard::other_cost);
}

void Http2Connection::on_peer_ping() {
  if (pings_.on_ping(now_)) return;
  send_goaway(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
  failure_ = Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                  "the client sends PINGs more often than ping_interval_min allows");
}

bool Http2Connection::is_of_goaway(const nghttp2_ping& ping) noexcept {
  return std::memcmp(ping.opaque_data, goaway_ping.data(), goaway_ping.size()) == 0;
}

int Http2Connection::on_invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int, void* user) {
  Http2Connection& connection = *static_cast<Http2Connection*>(user);
  if (connection.options_.server && frame->hd.type == NGHTTP2_GOAWAY) {
    // Clients of grpc-go close a connection with GOAWAY up to stream 2^31-1, and HAProxy with its own streams, which
    // nghttp2 refuses, because they are not streams of a server. The connection ends as the client wishes.
    if (frame->goaway.error_code == NGHTTP2_NO_ERROR) {
      connection.peer_ends_ = true;
    } else if (!connection.failure_) {
      try {
        const std::string_view reason = debug_text(frame->goaway);
        connection.failure_ = Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                                   "HTTP/2: the client ended the connection with GOAWAY " +
                                                       std::string(nghttp2_http2_strerror(frame->goaway.error_code)) +
                                                       (reason.empty() ? "" : " (" + std::string(reason) + ")"));
      } catch (...) {
        connection.fail_without_memory();
      }
    }
    return 0;
  }
  static_cast<void>(connection.guard_.take(FloodGuard::invalid_frame_cost, "invalid frames"));
  return 0;
}

// ---- Requests of a client ----

bool Http2Connection::open_request(Http2Stream& stream, std::span<const Field> fields) {
  if (requests_.empty() && may_open()) return submit_request(stream, fields);
  requests_.add(stream, fields);
  return true;
}

bool Http2Connection::may_open() const noexcept {
  return requests_.submitted() < nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

// False if the connection has no stream ids left.
bool Http2Connection::submit_request(Http2Stream& stream, std::span<const Field> fields) {
  HeaderBlock block;
  for (const auto& [name, value] : fields) block.add(name, value);
  const nghttp2_data_provider body = provider(stream);
  const std::int32_t id = nghttp2_submit_request(session_, nullptr, block.data(), block.size(), &body, &stream);
  if (id < 0) return false;
  stream.id = id;
  stream.headers_sent = true;
  requests_.on_submitted(stream);
  return true;
}

void Http2Connection::open_waiting() {
  while (!requests_.empty() && may_open()) {
    Http2Stream& stream = requests_.front();
    const std::vector<std::pair<std::string, std::string>> kept = std::exchange(stream.waiting_fields, {});
    const std::vector<Field> fields(kept.begin(), kept.end());
    if (!submit_request(stream, fields)) return refuse_waiting();
  }
}

void Http2Connection::refuse_waiting() {
  requests_.empty_into([&](Http2Stream& stream) { close_stream(stream, NGHTTP2_REFUSED_STREAM); });
}

// ---- Sending ----

nghttp2_data_provider Http2Connection::provider(Http2Stream& stream) const noexcept {
  nghttp2_data_provider result{};
  result.source.ptr = &stream;
  result.read_callback = read_;
  return result;
}

void Http2Connection::submit_response(Http2Stream& stream, const HeaderBlock& block, bool body) {
  stream.headers_sent = true;
  if (!body) stream.ended = true;
  const nghttp2_data_provider source = provider(stream);
  nghttp2_submit_response(session_, stream.id, block.data(), block.size(), body ? &source : nullptr);
}

int Http2Connection::submit_trailers(const Http2Stream& stream, const HeaderBlock& block) {
  return nghttp2_submit_trailer(session_, stream.id, block.data(), block.size());
}

void Http2Connection::send_status_only(Http2Stream& stream, unsigned http_status) {
  if (!stream.open || stream.headers_sent) return;
  const std::string number = std::to_string(http_status);
  HeaderBlock block;
  block.add_named(":status", number);
  stream.ending = true;
  submit_response(stream, block, false);
}

void Http2Connection::send_plain_head(Http2Stream& stream, unsigned http_status, std::span<const Field> fields,
                                      bool end) {
  if (!stream.open || stream.headers_sent) return;
  const std::string number = std::to_string(http_status);
  HeaderBlock block;
  block.add_named(":status", number);
  for (const auto& [name, value] : fields) block.add(name, value);
  const nghttp2_data_provider body = provider(stream);
  const int status = nghttp2_submit_response(session_, stream.id, block.data(), block.size(), end ? nullptr : &body);
  if (status == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
  stream.headers_sent = true;
  stream.plain = true;
  if (end) stream.ending = stream.ended = true;
}

void Http2Connection::send_interim(Http2Stream& stream, unsigned http_status) {
  if (!stream.open || stream.headers_sent) return;
  const std::string number = std::to_string(http_status);
  HeaderBlock block;
  block.add_named(":status", number);
  nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream.id, nullptr, block.data(), block.size(), nullptr);
}

bool Http2Connection::queue_body(Http2Stream& stream, Buffer head, std::span<const ConstBuffer> pieces,
                                 SendCompletion* owner, std::uint32_t credit) {
  if (!stream.open || stream.ending) {
    if (owner != nullptr) owner->on_send_complete();
    return false;
  }
  const std::size_t before = stream.out.bytes();
  const bool borrowed = stream.out.add(std::move(head), pieces, owner, credit);
  sent_.waiting_bytes += stream.out.bytes() - before;
  if (owner != nullptr && !borrowed) owner->on_send_complete();
  return true;
}

void Http2Connection::resume(Http2Stream& stream) {
  if (std::exchange(stream.deferred, false)) nghttp2_session_resume_data(session_, stream.id);
}

void Http2Connection::send_end(Http2Stream& stream) {
  if (!stream.open || stream.ending) return;
  stream.ending = true;
  resume(stream);
}

bool Http2Connection::break_off(Http2Stream& stream) {
  if (!stream.open || stream.ending || stream.resetting) return false;
  stream.ending = stream.breaks = true;
  resume(stream);
  return true;
}

bool Http2Connection::reset(Http2Stream& stream, std::uint32_t http2_code) {
  if (!stream.open || std::exchange(stream.resetting, true)) return false;
  if (stream.waiting) {
    close_stream(stream, http2_code);
  } else {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id, http2_code);
  }
  return true;
}

bool Http2Connection::begin_close(Http2Stream& stream) {
  if (!std::exchange(stream.open, false)) return false;
  if (!options_.server) requests_.on_closed(stream);
  if (incoming_.stream == &stream) incoming_.stream = nullptr;
  drop_output(stream);
  return true;
}

void Http2Connection::drop_output(Http2Stream& stream) noexcept {
  sent_.waiting_bytes -= stream.out.bytes();
  if (!stream.out.drop(output_)) fail_without_memory();
}

void Http2Connection::pump() {
  if (!requests_.empty()) open_waiting();
  while (output_.bytes() < ahead_bytes) {
    const std::uint8_t* data = nullptr;
    const auto bytes = nghttp2_session_mem_send(session_, &data);
    if (bytes < 0 && !failure_) {
      failure_ = Error::of_connection(bytes == NGHTTP2_ERR_NOMEM ? ErrorCode::internal : ErrorCode::protocol_error,
                                      "HTTP/2: " + std::string(nghttp2_strerror(static_cast<int>(bytes))));
    }
    if (bytes <= 0) break;
    std::memcpy(output_.reserve(static_cast<std::size_t>(bytes)), data, static_cast<std::size_t>(bytes));
    output_.commit(static_cast<std::size_t>(bytes));
  }
}

ssize_t Http2Connection::read_length(nghttp2_session*, std::uint8_t, std::int32_t, std::int32_t connection_window,
                                     std::int32_t stream_window, std::uint32_t frame_bytes_max, void*) {
  const std::int64_t window = std::min(connection_window, stream_window);
  return static_cast<ssize_t>(std::clamp<std::int64_t>(window, 1, frame_bytes_max));
}

// Moves the next bytes of the stream to the output, behind the header of their frame. Returns their credit.
std::uint32_t Http2Connection::send_piece(Http2Stream& stream, const std::uint8_t* header, std::size_t bytes) {
  std::memcpy(output_.reserve(FloodGuard::frame_header_bytes), header, FloodGuard::frame_header_bytes);
  output_.commit(FloodGuard::frame_header_bytes);
  sent_.waiting_bytes -= bytes;
  sent_.data_bytes += bytes;
  return stream.out.move_to(output_, bytes);
}

int Http2Connection::on_sent_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  Http2Connection& connection = *static_cast<Http2Connection*>(user);
  return connection.guarded([&] {
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
        connection.pings_.on_sent();
        connection.end_request(*frame);
        return 0;
      case NGHTTP2_DATA:
        connection.pings_.on_sent();
        connection.end_request(*frame);
        // A short frame that the peer's window has cut is the answer to a WINDOW_UPDATE, which would be free otherwise.
        if (!connection.sent_.cut) connection.guard_.give_sent_data(frame->hd.length);
        return 0;
      case NGHTTP2_GOAWAY: connection.on_sent_goaway(frame->goaway); return 0;
      case NGHTTP2_RST_STREAM: connection.on_sent_reset(frame->rst_stream.error_code); return 0;
      default: return 0;
    }
  });
}

// The client need not send the rest of a request that has been answered. But some clients, such as curl 7.88, lose a
// response that a reset follows while they send, so that a short rest is received.
void Http2Connection::end_request(const nghttp2_frame& frame) {
  if (!options_.server || (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return;
  Http2Stream* const stream = stream_of(session_, frame.hd.stream_id);
  if (stream != nullptr && stream->plain && !stream->remote_ended && !stream->resetting) {
    stream->discards = discarding_ = true;
  } else if (stream == nullptr || !stream->remote_ended) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, frame.hd.stream_id, NGHTTP2_NO_ERROR);
  }
}

void Http2Connection::on_sent_goaway(const nghttp2_goaway& goaway) {
  if (goaway.error_code == NGHTTP2_NO_ERROR || failure_ || peer_ends_) return;
  // nghttp2 has ended the session, with its reason as debug data, such as "RST_STREAM: stream in idle".
  const std::string_view reason = debug_text(goaway);
  failure_ = Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                  "HTTP/2: " + std::string(nghttp2_http2_strerror(goaway.error_code)) +
                                      (reason.empty() ? "" : " (" + std::string(reason) + ")"));
}

void Http2Connection::on_sent_reset(std::uint32_t http2_code) {
  // The server may have sent the two header blocks of the response, which are ignored.
  if (!options_.server) guard_.give_headers(2 * options_.metadata_bytes_max);
  if (http2_code == NGHTTP2_NO_ERROR || http2_code == NGHTTP2_CANCEL) return;
  const bool refused = http2_code == NGHTTP2_REFUSED_STREAM;
  static_cast<void>(
      guard_.take(refused ? FloodGuard::other_cost : FloodGuard::sent_reset_cost, "streams that must be reset"));
}

// ---- The connection ----

void Http2Connection::ping() { nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr); }

void Http2Connection::announce_goaway() {
  nghttp2_submit_shutdown_notice(session_);
  nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, goaway_ping.data());
}

void Http2Connection::send_goaway(std::uint32_t http2_code, std::string_view text) {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(session_), http2_code,
                        reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

bool Http2Connection::finished() const noexcept {
  return nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
}

std::size_t Http2Connection::queued_frames() const noexcept {
  return nghttp2_session_get_outbound_queue_size(session_);
}

std::string Http2Connection::describe() const {
  return std::to_string(nghttp2_session_get_remote_window_size(session_)) + " bytes of the peer's window left; " +
         std::to_string(queued_frames()) + " frames queued";
}

}  // namespace hawser::protocol::http2
