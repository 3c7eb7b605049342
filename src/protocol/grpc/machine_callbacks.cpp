#include "protocol/grpc/machine_callbacks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>

namespace hawser::protocol::grpc {
namespace {

// A longer header list ends the connection. A list between its limit and this bound is decoded and not kept, because
// the streams behind it need the state of HPACK. The bound is above each metadata_bytes_max.
constexpr std::size_t list_bytes_hard_max = std::size_t{256} << 10;
// nghttp2 ends the connection if more PING or SETTINGS frames wait for their acknowledgement.
constexpr std::size_t queued_acks_max = 200;
constexpr std::size_t settings_entries_max = 32;
// A call that its caller resets sooner was no work of use.
constexpr Duration waited_min = std::chrono::milliseconds(5);
// A frame of DATA that is shorter because of the peer's window is of little use.
constexpr std::size_t cut_bytes_max = 256;

std::string_view text(const std::uint8_t* data, std::size_t size) noexcept {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace

nghttp2_session* Http2Machine::Callbacks::make_session(Http2Machine& machine) {
  nghttp2_session_callbacks* raw_callbacks = nullptr;
  nghttp2_option* raw_option = nullptr;
  if (nghttp2_session_callbacks_new(&raw_callbacks) != 0) throw std::bad_alloc();
  const std::unique_ptr<nghttp2_session_callbacks, decltype(&nghttp2_session_callbacks_del)> callbacks(
      raw_callbacks, &nghttp2_session_callbacks_del);
  if (nghttp2_option_new(&raw_option) != 0) throw std::bad_alloc();
  const std::unique_ptr<nghttp2_option, decltype(&nghttp2_option_del)> option(raw_option, &nghttp2_option_del);

  nghttp2_session_callbacks_set_on_begin_headers_callback(raw_callbacks, &on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(raw_callbacks, &on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(raw_callbacks, &on_frame);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(raw_callbacks, &on_invalid_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(raw_callbacks, &on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(raw_callbacks, &on_close);
  nghttp2_session_callbacks_set_on_frame_send_callback(raw_callbacks, &on_sent_frame);
  nghttp2_session_callbacks_set_on_frame_not_send_callback(raw_callbacks, &on_unsent_frame);
  nghttp2_session_callbacks_set_send_data_callback(raw_callbacks, &send_data);
  nghttp2_session_callbacks_set_data_source_read_length_callback(raw_callbacks, &read_length);

  nghttp2_option_set_no_auto_window_update(raw_option, 1);
  nghttp2_option_set_no_closed_streams(raw_option, 1);
  if (machine.options_.server) nghttp2_option_set_no_http_messaging(raw_option, 1);  // Stream::rules.
  nghttp2_option_set_max_outbound_ack(raw_option, queued_acks_max);
  nghttp2_option_set_max_settings(raw_option, settings_entries_max);
  // The guard counts resets by its own tokens. This is the second line.
  nghttp2_option_set_stream_reset_rate_limit(raw_option, 100'000, 50'000);

  nghttp2_session* session = nullptr;
  const int status = machine.options_.server
                         ? nghttp2_session_server_new2(&session, raw_callbacks, &machine, raw_option)
                         : nghttp2_session_client_new2(&session, raw_callbacks, &machine, raw_option);
  if (status != 0) throw std::bad_alloc();
  return session;
}

nghttp2_data_provider Http2Machine::Callbacks::provider(Http2Stream& stream) noexcept {
  nghttp2_data_provider result{};
  result.source.ptr = &stream;
  result.read_callback = &read;
  return result;
}

// An exception must not pass through the C functions of nghttp2.
template <class Work>
int Http2Machine::Callbacks::guarded(Http2Machine& machine, Work work) noexcept {
  try {
    const int status = work();
    // Queued frames are still sent after a failure: they state the reason.
    return machine.failure_ && machine.receiving_ ? NGHTTP2_ERR_CALLBACK_FAILURE : status;
  } catch (...) {
    machine.failure_.emplace();  // ErrorCode::internal without a text: memory is exhausted.
    machine.failure_->scope = ErrorScope::connection;
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
}

Http2Stream* Http2Machine::Callbacks::stream_of(nghttp2_session* session, std::int32_t id) noexcept {
  return static_cast<Http2Stream*>(nghttp2_session_get_stream_user_data(session, id));
}

// ---- Receiving ----

int Http2Machine::Callbacks::on_begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    machine.header_stream_ = nullptr;
    machine.ignored_list_bytes_ = 0;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
      machine.header_stream_ = stream_of(session, frame->hd.stream_id);
      return 0;
    }
    Http2Stream* const stream = machine.take_slot();
    if (stream == nullptr) {
      // The handlers of earlier streams still run, although the peer may have reset those streams.
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
      return 0;
    }
    stream->id = frame->hd.stream_id;
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    machine.header_stream_ = stream;
    return 0;
  });
}

int Http2Machine::Callbacks::on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name,
                                       std::size_t name_bytes, const std::uint8_t* value, std::size_t value_bytes,
                                       std::uint8_t, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    const std::size_t most = machine.options_.metadata_bytes_max;
    Http2Stream* const stream = machine.header_stream_;
    const std::string_view key = text(name, name_bytes);
    std::string_view content = text(value, value_bytes);
    if (machine.options_.server && !key.starts_with(':')) content = http2::RequestRules::without_spaces(content);
    const bool trailers = frame->headers.cat != NGHTTP2_HCAT_REQUEST;
    const bool used = !machine.options_.server || stream == nullptr || stream->rules.add(key, content, trailers);
    std::size_t list_bytes = 0;
    if (!used || stream == nullptr || (machine.options_.server && trailers)) {
      list_bytes = machine.ignored_list_bytes_ += name_bytes + value_bytes + 32;
    } else {
      stream->fields.add(key, content, most);
      list_bytes = stream->fields.list_bytes;
    }
    if (list_bytes > list_bytes_hard_max) {
      machine.fail(Error::of_connection(Initiator::peer, ErrorCode::limit_exceeded,
                                        "a header list of more than " + std::to_string(list_bytes_hard_max) +
                                            " bytes: the limit, which SETTINGS announced, is metadata_bytes_max (" +
                                            std::to_string(most) + ")"));
    }
    return 0;
  });
}

int Http2Machine::Callbacks::headers_done(Http2Machine& machine, const nghttp2_frame* frame) {
  Http2Stream* const stream = machine.header_stream_;
  machine.header_stream_ = nullptr;
  if (stream == nullptr) return 0;
  const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (machine.options_.server) {
    const bool head = frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    if (head) stream->rules.end_head();
    if (!head && !end) stream->rules.fail();
    if (end) stream->rules.end();
    if (machine.reset_malformed(*stream)) return 0;
    if (head) {
      stream->headers_seen = true;
      machine.charge_fields(*stream);
      machine.sink_.on_headers(*stream);
    } else {
      machine.guard_.give_headers(frame->hd.length);
    }
  } else if (stream->fields.http_status >= 100 && stream->fields.http_status < 200) {
    stream->fields.clear();  // An interim response. The server may send any number of them, so that they cost tokens.
  } else {
    machine.guard_.give_headers(frame->hd.length);
    if (!end && !stream->headers_seen) {
      stream->headers_seen = true;
      machine.sink_.on_headers(*stream);
    }
  }
  if (end && stream->open) machine.end_remote(*stream);
  return 0;
}

int Http2Machine::Callbacks::on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS: return headers_done(machine, frame);
      case NGHTTP2_DATA:
        if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
          if (Http2Stream* const stream = stream_of(session, frame->hd.stream_id)) {
            if (machine.options_.server) stream->rules.end();
            if (!machine.reset_malformed(*stream)) machine.end_remote(*stream);
          }
        }
        return 0;
      case NGHTTP2_RST_STREAM: {
        // The client gives up a call that it has waited for. The calls of a connection are bounded, so that it can't do
        // this often.
        const Http2Stream* const stream = stream_of(session, frame->hd.stream_id);
        if (stream != nullptr && machine.now_ - stream->opened >= waited_min) {
          machine.guard_.give(http2::FloodGuard::other_cost);
        }
        return 0;
      }
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) {
          machine.sink_.on_pong(std::memcmp(frame->ping.opaque_data, goaway_ping.data(), goaway_ping.size()) == 0);
        } else {
          machine.on_peer_ping();
        }
        return 0;
      case NGHTTP2_GOAWAY:
        machine.refuse_waiting();
        machine.sink_.on_goaway(frame->goaway.last_stream_id, frame->goaway.error_code,
                                text(frame->goaway.opaque_data, frame->goaway.opaque_data_len));
        return 0;
      default: return 0;
    }
  });
}

int Http2Machine::Callbacks::on_invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  if (machine.options_.server && frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code == NGHTTP2_NO_ERROR) {
    // Clients of grpc-go close a connection with GOAWAY up to stream 2^31-1, which nghttp2 refuses, because it is no
    // stream of a server. The connection ends as the client wishes.
    machine.peer_ends_ = true;
    return 0;
  }
  static_cast<void>(machine.guard_.take(http2::FloodGuard::invalid_frame_cost, "invalid frames"));
  return 0;
}

int Http2Machine::Callbacks::on_data(nghttp2_session* session, std::uint8_t, std::int32_t id, const std::uint8_t* data,
                                     std::size_t bytes, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    // The window of the connection is returned at once: a call whose handler is slow must not stop the others.
    nghttp2_session_consume_connection(session, bytes);
    Http2Stream* const stream = stream_of(session, id);
    if (stream != nullptr && machine.options_.server) stream->rules.add_body(bytes);
    if (stream != nullptr && !machine.reset_malformed(*stream)) {
      machine.take_data(*stream, Bytes(reinterpret_cast<const std::byte*>(data), bytes), machine.receive_block_);
      if (stream->discards && (stream->discarded_bytes += bytes) > discarded_bytes_max) {
        machine.reset(*stream, NGHTTP2_NO_ERROR);
      }
    } else {
      nghttp2_session_consume_stream(session, id, bytes);
    }
    return 0;
  });
}

int Http2Machine::Callbacks::on_close(nghttp2_session* session, std::int32_t id, std::uint32_t code, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    if (Http2Stream* const stream = stream_of(session, id)) {
      nghttp2_session_set_stream_user_data(session, id, nullptr);
      machine.close_stream(*stream, code);
    }
    return 0;
  });
}

// ---- Sending ----

// The client need not send the rest of a request that has been answered. But some clients, such as curl 7.88, lose a
// response that a reset follows while they send, so that a short rest is received.
void Http2Machine::Callbacks::end_request(Http2Machine& machine, nghttp2_session* session, const nghttp2_frame* frame) {
  if (!machine.options_.server || (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return;
  Http2Stream* const stream = stream_of(session, frame->hd.stream_id);
  if (stream != nullptr && stream->plain && !stream->remote_ended && !stream->resetting) {
    stream->discards = machine.discarding_ = true;
  } else if (stream == nullptr || !stream->remote_ended) {
    nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
  }
}

int Http2Machine::Callbacks::on_sent_frame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
        machine.ping_strikes_ = 0;
        end_request(machine, session, frame);
        return 0;
      case NGHTTP2_DATA:
        machine.ping_strikes_ = 0;
        end_request(machine, session, frame);
        // A short frame that the peer's window has cut is the answer to a WINDOW_UPDATE, which would be free otherwise.
        if (!machine.data_cut_) machine.guard_.give_sent_data(frame->hd.length);
        return 0;
      case NGHTTP2_GOAWAY:
        if (frame->goaway.error_code != NGHTTP2_NO_ERROR && !machine.failure_ && !machine.peer_ends_) {
          // nghttp2 has ended the session, with its reason as debug data, such as "RST_STREAM: stream in idle".
          const std::string_view reason = text(frame->goaway.opaque_data, frame->goaway.opaque_data_len);
          machine.failure_ =
              Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                   "HTTP/2: " + std::string(nghttp2_http2_strerror(frame->goaway.error_code)) +
                                       (reason.empty() ? "" : " (" + std::string(reason) + ")"));
        }
        return 0;
      case NGHTTP2_RST_STREAM:
        // The server may have sent the two header blocks of the response, which are ignored.
        if (!machine.options_.server) machine.guard_.give_headers(2 * machine.options_.metadata_bytes_max);
        if (frame->rst_stream.error_code != NGHTTP2_NO_ERROR && frame->rst_stream.error_code != NGHTTP2_CANCEL) {
          const bool refused = frame->rst_stream.error_code == NGHTTP2_REFUSED_STREAM;
          static_cast<void>(
              machine.guard_.take(refused ? http2::FloodGuard::other_cost : http2::FloodGuard::sent_reset_cost,
                                  "streams that must be reset"));
        }
        return 0;
      default: return 0;
    }
  });
}

int Http2Machine::Callbacks::on_unsent_frame(nghttp2_session*, const nghttp2_frame* frame, int, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    // A client's request that was not sent: it was cancelled before, or the server takes no more streams.
    machine.for_each([&](Http2Stream& stream) {
      if (stream.id == frame->hd.stream_id && stream.open) machine.close_stream(stream, NGHTTP2_REFUSED_STREAM);
    });
    return 0;
  });
}

ssize_t Http2Machine::Callbacks::read_length(nghttp2_session*, std::uint8_t, std::int32_t,
                                             std::int32_t connection_window, std::int32_t stream_window,
                                             std::uint32_t frame_bytes_max, void*) {
  const std::int64_t window = std::min(connection_window, stream_window);
  return static_cast<ssize_t>(std::clamp<std::int64_t>(window, 1, frame_bytes_max));
}

ssize_t Http2Machine::Callbacks::read(nghttp2_session*, std::int32_t, std::uint8_t*, std::size_t bytes,
                                      std::uint32_t* flags, nghttp2_data_source* source, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  Http2Stream& stream = *static_cast<Http2Stream*>(source->ptr);
  const std::size_t part = std::min(bytes, stream.out_bytes);
  if (part == 0 && !stream.ending) {
    stream.deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  // nghttp2 resets the stream then.
  if (part == 0 && stream.breaks) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  machine.data_cut_ = part < stream.out_bytes && part < cut_bytes_max;
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (stream.ending && part == stream.out_bytes && !stream.breaks) {
    stream.ended = true;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (machine.options_.server && !stream.plain) {
      *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      try {
        if (machine.submit_trailers(stream) != 0) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
      } catch (...) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
      }
    }
  }
  return static_cast<ssize_t>(part);
}

int Http2Machine::Callbacks::send_data(nghttp2_session*, nghttp2_frame*, const std::uint8_t* header, std::size_t bytes,
                                       nghttp2_data_source* source, void* user) {
  Http2Machine& machine = *static_cast<Http2Machine*>(user);
  return guarded(machine, [&] {
    Http2Stream& stream = *static_cast<Http2Stream*>(source->ptr);
    std::memcpy(machine.output_.reserve(http2::FloodGuard::frame_header_bytes), header,
                http2::FloodGuard::frame_header_bytes);
    machine.output_.commit(http2::FloodGuard::frame_header_bytes);
    machine.send_piece(stream, bytes);
    return 0;
  });
}

}  // namespace hawser::protocol::grpc
