#pragma once

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string_view>

#include "protocol/http2/connection.h"

namespace hawser::protocol::http2 {

// The functions that nghttp2 calls for a `User`, a final class that derives from Http2Connection. They are bound when
// they are compiled, because some of them run for each field and each part of a body. The user has:
//
// - `Stream`, which derives from Http2Stream, and for_each() over its streams;
// - take_stream(): a stream for a request of the peer, or null if there are too many;
// - add_field(stream, name, value): keeps a field. Returns the size of the list as RFC 9113, 6.5.2, counts;
// - drop_interim(stream): drops the fields of an interim response and returns true, if it is one;
// - on_head(stream): the head of a request has arrived, or that of a response which does not end there;
// - on_data(stream, bytes, block): a part of the body, which lies in `block` unless that is null;
// - on_remote_end(stream): the peer has ended its direction;
// - send_trailers(stream): the body has been sent, and trailers follow. Returns the status of submit_trailers();
// - on_sent(stream, credit): chunks with this credit have left the stream's queue;
// - on_goaway(last, code, text) and on_pong(of_goaway): the connection got these frames.
template <class User>
struct Http2Callbacks {
  using Stream = typename User::Stream;
  using Table = std::unique_ptr<nghttp2_session_callbacks, decltype(&nghttp2_session_callbacks_del)>;

  static Table table() {
    nghttp2_session_callbacks* raw = nullptr;
    if (nghttp2_session_callbacks_new(&raw) != 0) throw std::bad_alloc();
    nghttp2_session_callbacks_set_on_begin_headers_callback(raw, &on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(raw, &on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(raw, &on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(raw, &Http2Connection::on_invalid_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(raw, &on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(raw, &on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(raw, &Http2Connection::on_sent_frame);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(raw, &on_unsent_frame);
    nghttp2_session_callbacks_set_send_data_callback(raw, &send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(raw, &Http2Connection::read_length);
    return {raw, &nghttp2_session_callbacks_del};
  }

  // Gives the next bytes of a body to nghttp2, which calls send_data() for them.
  static ssize_t read(nghttp2_session*, std::int32_t, std::uint8_t*, std::size_t bytes, std::uint32_t* flags,
                      nghttp2_data_source* source, void* raw_user) {
    // A frame of DATA that is shorter because of the peer's window is of little use.
    constexpr std::size_t cut_bytes_max = 256;
    User& user = user_of(raw_user);
    Stream& stream = stream_of(*source);
    const std::size_t queued = stream.out.bytes();
    const std::size_t part = std::min(bytes, queued);
    if (part == 0 && !stream.ending) {
      stream.deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    // nghttp2 resets the stream then.
    if (part == 0 && stream.breaks) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    user.sent_.cut = part < queued && part < cut_bytes_max;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (stream.ending && part == queued && !stream.breaks) {
      stream.ended = true;
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (user.options_.server && !stream.plain) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        try {
          if (user.send_trailers(stream) != 0) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        } catch (...) {
          return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
      }
    }
    return static_cast<ssize_t>(part);
  }

 private:
  static User& user_of(void* user) noexcept { return static_cast<User&>(*static_cast<Http2Connection*>(user)); }
  static Stream& stream_of(const nghttp2_data_source& source) noexcept {
    return static_cast<Stream&>(*static_cast<Http2Stream*>(source.ptr));
  }
  static Stream* stream_of(nghttp2_session* session, std::int32_t id) noexcept {
    return static_cast<Stream*>(Http2Connection::stream_of(session, id));
  }
  static std::string_view text(const std::uint8_t* data, std::size_t size) noexcept {
    return {reinterpret_cast<const char*>(data), size};
  }

  static int on_begin_headers(nghttp2_session* session, const nghttp2_frame* frame, void* raw_user) {
    User& user = user_of(raw_user);
    return user.guarded([&] {
      const std::int32_t id = frame->hd.stream_id;
      user.incoming_ = {};
      if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        user.incoming_.stream = stream_of(session, id);
        return 0;
      }
      Http2Stream* const stream = user.take_stream();
      if (stream == nullptr) {
        // The handlers of earlier streams still run, although the peer may have reset those streams.
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
        return 0;
      }
      stream->id = id;
      nghttp2_session_set_stream_user_data(session, id, stream);
      user.incoming_.stream = stream;
      return 0;
    });
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const std::uint8_t* name, std::size_t name_bytes,
                       const std::uint8_t* value, std::size_t value_bytes, std::uint8_t, void* raw_user) {
    User& user = user_of(raw_user);
    return user.guarded([&] {
      const std::string_view key = text(name, name_bytes);
      std::string_view content = text(value, value_bytes);
      if (user.uses_field(key, content, frame->headers.cat != NGHTTP2_HCAT_REQUEST)) {
        user.check_list(user.add_field(static_cast<Stream&>(*user.incoming_.stream), key, content));
      } else {
        user.check_list(user.incoming_.ignored_bytes += name_bytes + value_bytes + 32);
      }
      return 0;
    });
  }

  static int headers_done(User& user, const nghttp2_frame& frame) {
    Stream* const stream = static_cast<Stream*>(user.incoming_.stream);
    user.incoming_.stream = nullptr;
    if (stream == nullptr) return 0;
    const bool end = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (user.options_.server) {
      if (!user.end_block(*stream, frame)) return 0;
      if (frame.headers.cat == NGHTTP2_HCAT_REQUEST) {
        stream->headers_seen = true;
        user.on_head(*stream);
      } else {
        user.guard_.give_headers(frame.hd.length);
      }
    } else if (!user.drop_interim(*stream)) {  // A server may send any number of them, so that they cost tokens.
      user.guard_.give_headers(frame.hd.length);
      if (!end && !stream->headers_seen) {
        stream->headers_seen = true;
        user.on_head(*stream);
      }
    }
    if (end && stream->open) user.on_remote_end(*stream);
    return 0;
  }

  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* raw_user) {
    User& user = user_of(raw_user);
    return user.guarded([&] {
      switch (frame->hd.type) {
        case NGHTTP2_HEADERS: return headers_done(user, *frame);
        case NGHTTP2_DATA: {
          Stream* const stream =
              (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0 ? nullptr : stream_of(session, frame->hd.stream_id);
          if (stream != nullptr && user.end_body(*stream)) user.on_remote_end(*stream);
          return 0;
        }
        case NGHTTP2_RST_STREAM: user.on_peer_reset(frame->hd.stream_id); return 0;
        case NGHTTP2_PING:
          if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) {
            user.on_pong(Http2Connection::is_of_goaway(frame->ping));
          } else {
            user.on_peer_ping();
          }
          return 0;
        case NGHTTP2_GOAWAY:
          user.refuse_waiting();
          user.on_goaway(frame->goaway.last_stream_id, frame->goaway.error_code,
                         text(frame->goaway.opaque_data, frame->goaway.opaque_data_len));
          return 0;
        default: return 0;
      }
    });
  }

  static int on_data(nghttp2_session*, std::uint8_t, std::int32_t id, const std::uint8_t* data, std::size_t bytes,
                     void* raw_user) {
    User& user = user_of(raw_user);
    return user.guarded([&] {
      Http2Stream* const stream = user.accept_data(id, bytes);
      if (stream == nullptr) return 0;
      user.on_data(static_cast<Stream&>(*stream), Bytes(reinterpret_cast<const std::byte*>(data), bytes),
                   user.receive_block_);
      user.count_discarded(*stream, bytes);
      return 0;
    });
  }

  static int on_close(nghttp2_session* session, std::int32_t id, std::uint32_t code, void* raw_user) {
    User& user = user_of(raw_user);
    return user.guarded([&] {
      Stream* const stream = stream_of(session, id);
      if (stream == nullptr) return 0;
      nghttp2_session_set_stream_user_data(session, id, nullptr);
      user.close_stream(*stream, code);
      return 0;
    });
  }

  static int on_unsent_frame(nghttp2_session*, const nghttp2_frame* frame, int, void* raw_user) {
    User& user = user_of(raw_user);
    return user.guarded([&] {
      if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
      // A client's request that was not sent: it was cancelled before, or the server takes no more streams.
      user.for_each([&](Stream& stream) {
        if (stream.id == frame->hd.stream_id && stream.open) user.close_stream(stream, NGHTTP2_REFUSED_STREAM);
      });
      return 0;
    });
  }

  static int send_data(nghttp2_session*, nghttp2_frame*, const std::uint8_t* header, std::size_t bytes,
                       nghttp2_data_source* source, void* raw_user) {
    User& user = user_of(raw_user);
    return user.guarded([&] {
      Stream& stream = stream_of(*source);
      const std::uint32_t credit = user.send_piece(stream, header, bytes);
      if (credit != 0) user.on_sent(stream, credit);
      return 0;
    });
  }
};

}  // namespace hawser::protocol::http2
