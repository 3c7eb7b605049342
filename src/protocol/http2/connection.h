#pragma once

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "pipe/send_queue.h"
#include "protocol/http2/flood_guard.h"
#include "protocol/http2/ping_limit.h"
#include "protocol/http2/request_queue.h"
#include "protocol/http2/stream.h"

namespace hawser::protocol::http2 {

class HeaderBlock;

struct Http2Options {
  bool server = true;
  std::size_t metadata_bytes_max = std::size_t{16} << 10;  // Limit of one header list, as HTTP/2 counts it.
  std::size_t streams_max = 256;  // Streams that the peer may have open, and calls that have not ended. At most 65,535.
  std::uint32_t stream_window_bytes = 512 * 1024;
  std::uint32_t connection_window_bytes = 4 * 1024 * 1024;
  std::uint32_t frame_bytes_max = 64 * 1024;
  FloodLimits flood = {};
  // A server ends a connection whose client sends more than ping_strikes_max PINGs that follow the one before sooner
  // than this, while nothing was sent to it. Zero: not checked.
  Duration ping_interval_min = Duration::zero();
  unsigned ping_strikes_max = 2;
};

// One HTTP/2 connection, either end, on nghttp2: frames, windows, the order of requests, and the limits of what a peer
// may cause. The user is a class that derives from this one, has the streams, and knows what their bodies are. nghttp2
// calls it by Http2Callbacks<User> (callbacks.h). No I/O, no clock, no coroutine.
class Http2Connection {
 public:
  // pump() produces at most about this many bytes ahead of what has been sent.
  static constexpr std::size_t ahead_bytes = 256 * 1024;
  // So many bytes of a request are discarded behind its response before its stream is reset: Http2Stream::discards.
  static constexpr std::size_t discarded_bytes_max = 64 * 1024;
  using Field = RequestQueue::Field;

  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;

  const Http2Options& options() const noexcept { return options_; }
  // True while bytes that have arrived are being taken, thus in calls that this causes.
  bool receiving() const noexcept { return receiving_; }
  // True if a frame of the peer has begun and is not complete.
  bool within_frame() const noexcept { return guard_.rest_of_frame() != 0; }
  // Moves frames that can be sent to the output. Not from within a callback.
  void pump();
  // True if nothing will be received or sent any more: the connection can be closed when the output is empty.
  bool finished() const noexcept;
  // The reason for which the connection was given up; nothing if it was not.
  const std::optional<Error>& failure() const noexcept { return failure_; }
  FloodGuard& guard() noexcept { return guard_; }

  // ---- Streams ----
  // Server: answers a request without a body, or sends the head of a response without trailers: its body follows unless
  // `end`. `fields` are copied. An interim status, such as 100, may precede it.
  void send_status_only(Http2Stream& stream, unsigned http_status);
  void send_plain_head(Http2Stream& stream, unsigned http_status, std::span<const Field> fields, bool end);
  void send_interim(Http2Stream& stream, unsigned http_status);
  // Nothing follows what is queued.
  void send_end(Http2Stream& stream);
  // A response without trailers that is not complete: resets the stream with INTERNAL_ERROR behind what is queued.
  // False if the stream is closed or has an end already.
  bool break_off(Http2Stream& stream);
  // False if the stream is closed or being reset already.
  bool reset(Http2Stream& stream, std::uint32_t http2_code);
  // The peer may send so many bytes again.
  void return_window(const Http2Stream& stream, std::size_t bytes);
  // True if a stream has begun to discard the rest of its request since the last call. The session bounds the time.
  bool take_discarding() noexcept { return std::exchange(discarding_, false); }

  // ---- The connection ----
  void ping();
  // First step: notifies the peer that no new streams will be accepted soon, and sends a PING. Second step, after its
  // acknowledgement: reports which streams were accepted.
  void announce_goaway();
  void send_goaway(std::uint32_t http2_code, std::string_view text);
  // Bytes of streams that have not left their queues.
  std::size_t waiting_bytes() const noexcept { return sent_.waiting_bytes; }
  // Bytes that have been handed to the peer's windows so far: shows whether a peer takes anything.
  std::uint64_t data_sent() const noexcept { return sent_.data_bytes; }
  // Frames that nghttp2 has queued. Bounded by what calls and received frames cause.
  std::size_t queued_frames() const noexcept;
  // The peer's window and the queued frames, for pages.
  std::string describe() const;

 protected:
  // `callbacks` and `read` are those of Http2Callbacks<User>. Bytes to be sent are added to `output`, which outlives
  // the connection.
  Http2Connection(const Http2Options& options, pipe::SendQueue& output, const nghttp2_session_callbacks& callbacks,
                  nghttp2_data_source_read_callback read);
  ~Http2Connection();

  // Takes all bytes that have arrived, which lie in `block` if it is not null. After a failure(), the output that
  // pump() gives should still be sent, because it states the reason.
  void receive_bytes(Bytes bytes, Block* block, Time now);
  Time now() const noexcept { return now_; }
  pipe::SendQueue& output() noexcept { return output_; }
  void fail(Error why);
  // The connection has ended.
  void give_up(const Error& why);

  // Client: begins a request, or adds it to those that wait while the server's MAX_CONCURRENT_STREAMS streams are open.
  // False if the connection has no stream ids left.
  bool open_request(Http2Stream& stream, std::span<const Field> fields);
  // Server. `body`: begins a response, whose body is queued; otherwise the block is the whole response.
  void submit_response(Http2Stream& stream, const HeaderBlock& block, bool body);
  // Returns the status of nghttp2.
  int submit_trailers(const Http2Stream& stream, const HeaderBlock& block);
  // Queues a part of the body: see StreamOutput::add(). False if the stream is closed or has an end: `owner` has been
  // notified. Otherwise resume() follows, for which the response must have begun.
  bool queue_body(Http2Stream& stream, Buffer head, std::span<const ConstBuffer> pieces, SendCompletion* owner,
                  std::uint32_t credit);
  void resume(Http2Stream& stream);
  // The first part of a stream's end; close_stream() of the user has the others. False if the stream was closed before.
  bool begin_close(Http2Stream& stream);
  void drop_output(Http2Stream& stream) noexcept;

 private:
  template <class User>
  friend struct Http2Callbacks;

  // The header block that is being received.
  struct IncomingBlock {
    Http2Stream* stream = nullptr;  // Null: it is ignored.
    std::size_t ignored_bytes = 0;  // The list size of fields that are not kept.
  };
  struct Sent {
    std::size_t waiting_bytes = 0;
    std::uint64_t data_bytes = 0;
    bool cut = false;  // The DATA frame that is being sent is short because of the peer's window.
  };

  // Closes a stream of the user with begin_close(), reports it, and lets it be reused unless it is busy.
  virtual void close_stream(Http2Stream& stream, std::uint32_t http2_code) = 0;

  nghttp2_session* make_session(const nghttp2_session_callbacks& callbacks);
  nghttp2_data_provider provider(Http2Stream& stream) const noexcept;
  static Http2Stream* stream_of(nghttp2_session* session, std::int32_t id) noexcept {
    return static_cast<Http2Stream*>(nghttp2_session_get_stream_user_data(session, id));
  }
  bool receive_frames(Bytes bytes);
  bool give_frames(Bytes bytes);
  void fail_as(std::uint32_t http2_code, Error why);
  bool may_open() const noexcept;
  bool submit_request(Http2Stream& stream, std::span<const Field> fields);
  void open_waiting();
  void refuse_waiting();

  // ---- Called by nghttp2 ----
  // Runs `work`, which returns a status of nghttp2. An exception must not pass through the C functions of nghttp2.
  template <class Work>
  int guarded(Work work) noexcept {
    try {
      const int status = work();
      // Queued frames are still sent after a failure: they state the reason.
      return failure_ && receiving_ ? NGHTTP2_ERR_CALLBACK_FAILURE : status;
    } catch (...) {
      fail_without_memory();
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }
  void fail_without_memory() noexcept;
  bool uses_field(std::string_view name, std::string_view& value, bool trailers) noexcept;
  void check_list(std::size_t list_bytes);
  bool end_block(Http2Stream& stream, const nghttp2_frame& frame);
  bool end_body(Http2Stream& stream);
  Http2Stream* accept_data(std::int32_t id, std::size_t bytes);
  void count_discarded(Http2Stream& stream, std::size_t bytes);
  bool reset_malformed(Http2Stream& stream);
  void on_peer_reset(std::int32_t id);
  void on_peer_ping();
  static bool is_of_goaway(const nghttp2_ping& ping) noexcept;
  std::uint32_t send_piece(Http2Stream& stream, const std::uint8_t* header, std::size_t bytes);
  void end_request(const nghttp2_frame& frame);
  void on_sent_goaway(const nghttp2_goaway& goaway);
  void on_sent_reset(std::uint32_t http2_code);
  static int on_invalid_frame(nghttp2_session*, const nghttp2_frame* frame, int error, void* user);
  static int on_sent_frame(nghttp2_session*, const nghttp2_frame* frame, void* user);
  static ssize_t read_length(nghttp2_session*, std::uint8_t kind, std::int32_t id, std::int32_t connection_window,
                             std::int32_t stream_window, std::uint32_t frame_bytes_max, void* user);

  const Http2Options options_;
  pipe::SendQueue& output_;
  const nghttp2_data_source_read_callback read_;
  nghttp2_session* session_ = nullptr;
  FloodGuard guard_;
  PingLimit pings_;
  RequestQueue requests_;
  IncomingBlock incoming_;
  Sent sent_;
  std::optional<Error> failure_;
  Time now_{};
  Block* receive_block_ = nullptr;
  bool receiving_ = false;
  bool peer_ends_ = false;  // Server: the client ends the connection without an error.
  bool discarding_ = false;
};

}  // namespace hawser::protocol::http2
