#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "pipe/send_queue.h"
#include "protocol/grpc/stream.h"
#include "protocol/http2/flood_guard.h"

struct nghttp2_session;

namespace hawser::protocol::grpc {

// Error codes of HTTP/2 (RFC 9113, section 7).
inline constexpr std::uint32_t http2_no_error = 0;
inline constexpr std::uint32_t http2_internal_error = 2;
inline constexpr std::uint32_t http2_refused_stream = 7;
inline constexpr std::uint32_t http2_cancel = 8;

struct MachineOptions {
  bool server = true;
  std::size_t message_bytes_max = std::size_t{4} << 20;
  std::size_t metadata_bytes_max = std::size_t{16} << 10;  // Limit of one header list, as HTTP/2 counts it.
  std::size_t streams_max = 256;  // Streams that the peer may have open, and calls that have not ended. At most 65,535.
  std::uint32_t stream_window_bytes = 512 * 1024;
  std::uint32_t connection_window_bytes = 4 * 1024 * 1024;
  std::uint32_t frame_bytes_max = 64 * 1024;
  http2::FloodLimits flood = {};
  // A server ends a connection whose client sends more than ping_strikes_max PINGs that follow the one before sooner
  // than this, while nothing was sent to it. Zero: not checked.
  Duration ping_interval_min = Duration::zero();
  unsigned ping_strikes_max = 2;
  bool plain_requests = false;  // A server keeps the fields of requests that are not gRPC.
};

// Receives the events of a machine. Called from within Http2Machine::receive(), release() and, for on_sent(), pump().
// Functions of the machine may be called from within, except receive() and pump().
class MachineSink {
 public:
  // A header block has arrived: the request's, or a response's that ends nothing. Sets Http2Stream::take.
  virtual void on_headers(Http2Stream& stream) = 0;
  // A message, with Http2Stream::Take::deliver. `block` holds it, or is null if its memory is reused.
  virtual void on_message(Http2Stream& stream, Bytes message, Block* block) = 0;
  // Bytes of a body, with Http2Stream::Take::plain.
  // Returns the number of bytes whose window is returned at once, as return_window() does it for the others.
  virtual std::size_t on_plain(Http2Stream& stream, Bytes bytes) {
    static_cast<void>(stream);
    return bytes.size();
  }
  // A message of `call` whose decompression would hold the loop for long. The sink gives it to unpack() on another
  // thread, and the result to Http2Machine::unpacked(), perhaps within this function. `charge` pays for both until
  // then.
  // False, with nothing taken: the machine decompresses the message itself.
  virtual bool on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&& charge) {
    static_cast<void>(call), static_cast<void>(packed), static_cast<void>(charge);
    return false;
  }
  // The peer has ended its direction; all messages have been delivered.
  virtual void on_end(Http2Stream& stream) = 0;
  // The peer's bytes on the stream can't be used. From now on it is dropped.
  virtual void on_bad(Http2Stream& stream, const Error& why) = 0;
  // The stream has been closed, by the peer's RST_STREAM or ours if `http2_code` is not 0. The stream is reused unless
  // it is busy.
  virtual void on_closed(Http2Stream& stream, std::uint32_t http2_code) = 0;
  // Chunks with this credit have left the stream's queue.
  virtual void on_sent(Http2Stream& stream, std::uint32_t credit) = 0;
  // The peer accepts no streams above `last`.
  virtual void on_goaway(std::int32_t last, std::uint32_t http2_code, std::string_view text) = 0;
  // The acknowledgement of a PING; `of_goaway`: of the one that announce_goaway() has sent.
  virtual void on_pong(bool of_goaway) = 0;

 protected:
  ~MachineSink() = default;
};

// gRPC over one HTTP/2 connection, either end, on nghttp2. No I/O, no clock, no coroutine.
class Http2Machine {
 public:
  // Parts of messages up to this size are copied next to the headers of their frames; longer parts stay where they are.
  static constexpr std::size_t copied_bytes_max = 2048;
  // pump() produces at most about this many bytes ahead of what has been sent.
  static constexpr std::size_t ahead_bytes = 256 * 1024;
  // Compressed messages up to packed_in_place_max, whose result has at most unpacked_in_place_max bytes, are
  // decompressed where they arrive, up to unpacked_turn_max bytes at a time, which takes about a millisecond. The
  // others are given to MachineSink::on_packed().
  static constexpr std::size_t packed_in_place_max = 16 * 1024;
  static constexpr std::size_t unpacked_in_place_max = 64 * 1024;
  static constexpr std::size_t unpacked_turn_max = 256 * 1024;
  // So many bytes of a request that is not gRPC are discarded behind its response before its stream is reset.
  static constexpr std::size_t discarded_bytes_max = 64 * 1024;

  // `account` pays for received data that is kept. Null: not counted. Bytes to be sent are added to `output`. Both
  // outlive the machine.
  Http2Machine(const MachineOptions& options, MachineSink& sink, detail::ReceiveAccount* account,
               pipe::SendQueue& output);
  Http2Machine(const Http2Machine&) = delete;
  Http2Machine& operator=(const Http2Machine&) = delete;
  ~Http2Machine();

  // Takes all bytes that have arrived, which lie in `block` if it is not null. Fails if the connection must end; the
  // output that pump() gives then should still be sent, because it states the reason.
  Result<void> receive(Bytes bytes, Block* block, Time now);
  // True within receive(), thus in callbacks that it makes.
  bool receiving() const noexcept { return receiving_; }
  // Moves frames that can be sent to the output. Not from within a callback.
  void pump();
  // True if nothing will be received or sent any more: the connection can be closed when the output is empty.
  bool finished() const noexcept;
  // The reason for which the machine gave up the connection; ok if it did not.
  const std::optional<Error>& failure() const noexcept { return failure_; }

  // ---- Streams ----
  Http2Stream* find(std::uint32_t call) const noexcept {
    const std::size_t slot = call & 0xFFFF;
    if (slot >= streams_.size()) return nullptr;
    Http2Stream* const stream = streams_[slot].get();
    return stream->call == call && (stream->open || stream->busy) ? stream : nullptr;
  }
  std::size_t used_streams() const noexcept { return used_streams_; }
  // Streams, windows and queued frames, for pages.
  std::string describe() const;
  // Calls `use` for each stream in use. It may end streams.
  template <class Use>
  void for_each(Use use) const {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (streams_[i]->open || streams_[i]->busy) use(*streams_[i]);
    }
  }
  // The session does not use the stream any more.
  void release_stream(Http2Stream& stream) noexcept;

  // Client: begins a request. It waits within the machine while the server's MAX_CONCURRENT_STREAMS streams are open.
  // Null if HTTP/2 has no more stream ids, or the slots are used up. `fields` are copied.
  using Field = std::pair<std::string_view, std::string_view>;
  Http2Stream* begin_request(std::span<const Field> fields);

  // Queues a message: its prefix and beginning in `head`, and pieces on loan from `owner`, which is notified later.
  // Server: begins the response if it has not begun. `credit` is reported when the last byte has left the queue.
  void send_message(Http2Stream& stream, Buffer head, std::span<const ConstBuffer> pieces, SendCompletion* owner,
                    std::uint32_t credit);
  // Server: sends the initial metadata before the first message, if they have not been sent.
  void send_headers(Http2Stream& stream);
  // Server: ends the response with a status, after the queued messages. Stream::trailers are sent with it.
  void send_status(Http2Stream& stream, int status, std::string_view text);
  // Server: answers a request that is not gRPC.
  void send_http_status(Http2Stream& stream, int http_status);
  // Likewise with fields, and with a body by send_message() unless `end`, until send_end(). An interim status, such as
  // 100, may precede it.
  void send_plain_head(Http2Stream& stream, unsigned http_status, std::span<const Field> fields, bool end);
  void send_interim(Http2Stream& stream, unsigned http_status);
  // Client, and response that is not gRPC: nothing follows the queued messages.
  void send_end(Http2Stream& stream);
  // A response that is not gRPC and not complete: resets the stream with INTERNAL_ERROR behind what is queued. False if
  // the stream is closed or has an end already.
  bool break_off(Http2Stream& stream);
  // False if the stream is closed or being reset already.
  bool reset(Http2Stream& stream, std::uint32_t http2_code);
  // True if a stream has begun to discard the rest of its request since the last call. The session bounds the time.
  bool take_discarding() noexcept { return std::exchange(discarding_, false); }
  // Copies the memory that is still on loan from `owner`, which is not notified any more.
  void copy_and_release(SendCompletion& owner);
  // The peer may send `bytes` bytes again that on_plain() held back.
  void return_window(Http2Stream& stream, std::size_t bytes) { consume(stream, bytes); }
  // The result of on_packed(), whose charge has been released; ignored if the stream does not wait for it any more. May
  // deliver more. Not from within receive(), except from on_packed().
  void unpacked(std::uint32_t call, Result<Buffer> message);
  // The whole message, which lies in the memory that is being received, is used later. On failure, on_bad() of the sink
  // has been called. Messages of at most held_bytes_least are always held: the number of streams bounds them.
  bool hold_message(Http2Stream& stream);
  static constexpr std::size_t held_bytes_least = 1024;
  // The receiver has `bytes` less of the stream's items. May deliver more.
  void release(Http2Stream& stream, std::size_t bytes);

  // ---- Connection ----
  void ping();
  // First step: notifies the peer that no new streams will be accepted soon, and sends a PING. Second step, after
  // on_pong(): reports which streams were accepted.
  void announce_goaway();
  void send_goaway(std::uint32_t http2_code, std::string_view text);
  // The connection has ended: closes all streams. Nothing is received or sent any more.
  void close_all(const Error& why);
  // Bytes of streams that have not left their queues.
  std::size_t waiting_bytes() const noexcept { return waiting_bytes_; }
  // Frames that nghttp2 has queued. Bounded by what calls and received frames cause.
  std::size_t queued_frames() const noexcept;
  http2::FloodGuard& guard() noexcept { return guard_; }
  // True if a frame of the peer has begun and is not complete.
  bool within_frame() const noexcept { return guard_.rest_of_frame() != 0; }
  const MachineOptions& options() const noexcept { return options_; }
  // Bytes that have been handed to the peer's windows so far: shows whether a peer takes anything.
  std::uint64_t data_sent() const noexcept { return data_sent_; }

 private:
  struct Callbacks;
  friend struct Callbacks;

  bool receive_frames(Bytes bytes);
  bool give_frames(Bytes bytes);
  Http2Stream* take_slot();
  void close_stream(Http2Stream& stream, std::uint32_t http2_code);
  void drop_output(Http2Stream& stream) noexcept;
  void recycle(Http2Stream& stream) noexcept;
  void charge_fields(Http2Stream& stream) noexcept;
  void take_data(Http2Stream& stream, Bytes bytes, Block* block);
  void take_bytes(Http2Stream& stream, Bytes bytes, Block* block);
  void take_message(Http2Stream& stream);
  void take_packed(Http2Stream& stream);
  bool unpack_later(Http2Stream& stream, std::optional<std::size_t> announced);
  void accept_message(Http2Stream& stream, Bytes message, Block* block, Buffer unpacked, detail::ReceiveCharge charge);
  void take_stalled(Http2Stream& stream);
  void stall(Http2Stream& stream, Bytes bytes);
  void end_remote(Http2Stream& stream);
  void deliver_end(Http2Stream& stream);
  void keep_unkept();
  void keep(Http2Stream& stream);
  void bad(Http2Stream& stream, const Error& why);
  void consume(Http2Stream& stream, std::size_t bytes);
  void resume(Http2Stream& stream);
  void submit_headers(Http2Stream& stream, bool end);
  int submit_trailers(Http2Stream& stream);
  void send_piece(Http2Stream& stream, std::size_t bytes);
  bool may_open() const noexcept;
  bool submit_request(Http2Stream& stream, std::span<const Field> fields);
  void open_waiting();
  void refuse_waiting();
  void fail(Error why);
  void fail_as(std::uint32_t http2_code, Error why);
  void on_peer_ping();
  // Resets the stream of a request that is malformed, and returns true if it is.
  bool reset_malformed(Http2Stream& stream);

  const MachineOptions options_;
  MachineSink& sink_;
  detail::ReceiveAccount* const account_;
  nghttp2_session* session_ = nullptr;
  http2::FloodGuard guard_;
  pipe::SendQueue& output_;
  std::optional<Error> failure_;
  Time now_{};

  std::vector<std::unique_ptr<Http2Stream>> streams_;  // By slot.
  std::vector<std::uint16_t> free_slots_;
  std::size_t used_streams_ = 0;
  std::size_t submitted_ = 0;             // Client: streams that HTTP/2 has.
  std::deque<std::uint32_t> waiting_;     // Client: requests that wait, in order, and some that have ended meanwhile.
  std::size_t waiting_count_ = 0;         // Entries that still wait.
  Http2Stream* header_stream_ = nullptr;  // The stream whose header block is being received.
  std::size_t ignored_list_bytes_ = 0;
  Block* receive_block_ = nullptr;
  bool receiving_ = false;
  std::vector<Http2Stream*> unkept_;  // Streams that had a message in the memory that is being received. Some twice.
  std::size_t unpacked_ = 0;          // Bytes that were decompressed in place since receive() or its like began.
  std::size_t waiting_bytes_ = 0;
  std::uint64_t data_sent_ = 0;
  bool data_cut_ = false;  // The DATA frame that is being sent is short because of the peer's window.
  Time last_ping_{};
  unsigned ping_strikes_ = 0;
  bool pinged_ = false;
  bool peer_ends_ = false;  // Server: the client ends the connection without an error.
  bool discarding_ = false;
};

}  // namespace hawser::protocol::grpc
