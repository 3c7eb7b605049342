#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "pipe/send_queue.h"
#include "protocol/grpc/grpc_stream.h"
#include "protocol/http2/callbacks.h"
#include "protocol/http2/connection.h"
#include "protocol/http2/stream_table.h"
#include "rpc/port/body_form.h"

namespace hawser::protocol::grpc {

struct MachineOptions {
  http2::Http2Options connection = {};
  std::size_t message_bytes_max = std::size_t{4} << 20;
  bool plain_requests = false;  // A server keeps the fields of requests that are not gRPC.
};

// Receives the events of a machine. Called from within GrpcMachine::receive(), release() and, for on_sent(), pump().
// Functions of the machine may be called from within, except receive() and pump().
class MachineSink {
 public:
  // A header block has arrived: the request's, or a response's that ends nothing. Sets GrpcStream::take.
  virtual void on_headers(GrpcStream& stream) = 0;
  // A message, with GrpcStream::Take::deliver. `block` holds it, or is null if its memory is reused.
  virtual void on_message(GrpcStream& stream, Bytes message, Block* block) = 0;
  // Bytes of a body, with GrpcStream::Take::plain.
  // Returns the number of bytes whose window is returned at once, as return_window() does it for the others.
  virtual std::size_t on_plain(GrpcStream& stream, Bytes bytes) {
    static_cast<void>(stream);
    return bytes.size();
  }
  // False: a compressed message, with GrpcStream::Take::deliver, waits for GrpcMachine::release_packed().
  virtual bool may_unpack(const GrpcStream& stream) const noexcept {
    static_cast<void>(stream);
    return true;
  }
  // A message of `call` whose decompression would hold the loop for long. The sink gives it to unpack() on another
  // thread, and the result to GrpcMachine::unpacked(), perhaps within this function. `charge` pays for both until
  // then.
  // False, with nothing taken: the machine decompresses the message itself.
  virtual bool on_packed(std::uint32_t call, PackedMessage&& packed, detail::ReceiveCharge&& charge) {
    static_cast<void>(call), static_cast<void>(packed), static_cast<void>(charge);
    return false;
  }
  // The memory for received data has no room for what the compressed message of `call` becomes. True: the message waits
  // for GrpcMachine::release_packed(). False: its call fails.
  virtual bool waits_for_memory(std::uint32_t call) {
    static_cast<void>(call);
    return false;
  }
  // The peer has ended its direction; all messages have been delivered.
  virtual void on_end(GrpcStream& stream) = 0;
  // The peer's bytes on the stream can't be used. From now on it is dropped.
  virtual void on_bad(GrpcStream& stream, const Error& why) = 0;
  // The stream has been closed, by the peer's RST_STREAM or ours if `http2_code` is not 0. The stream is reused unless
  // it is busy.
  virtual void on_closed(GrpcStream& stream, std::uint32_t http2_code) = 0;
  // Chunks with this credit have left the stream's queue.
  virtual void on_sent(GrpcStream& stream, std::uint32_t credit) = 0;
  // The peer accepts no streams above `last`.
  virtual void on_goaway(std::int32_t last, std::uint32_t http2_code, std::string_view text) = 0;
  // The acknowledgement of a PING; `of_goaway`: of the one that announce_goaway() has sent.
  virtual void on_pong(bool of_goaway) = 0;

 protected:
  ~MachineSink() = default;
};

// The messages of gRPC on one HTTP/2 connection, either end. No I/O, no clock, no coroutine.
class GrpcMachine final : public http2::Http2Connection {
 public:
  using Stream = GrpcStream;
  // A server keeps the compressed message of a unary call as it is: its session decompresses it behind the
  // interceptors. Other compressed messages up to packed_in_place_max, whose result has at most unpacked_in_place_max
  // bytes, are decompressed where they arrive, up to unpacked_turn_max bytes at a time, which takes about a
  // millisecond. The others are given to MachineSink::on_packed().
  static constexpr std::size_t packed_in_place_max = rpc::BodyForm::packed_in_place_max;
  static constexpr std::size_t unpacked_in_place_max = rpc::BodyForm::unpacked_in_place_max;
  static constexpr std::size_t unpacked_turn_max = rpc::BodyForm::unpacked_tick_max;

  // `account` pays for received data that is kept. Null: not counted. Bytes to be sent are added to `output`. Both
  // outlive the machine.
  GrpcMachine(const MachineOptions& options, MachineSink& sink, detail::ReceiveAccount* account,
              pipe::SendQueue& output);
  ~GrpcMachine();

  // Takes all bytes that have arrived, which lie in `block` if it is not null. Fails if the connection must end; the
  // output that pump() gives then should still be sent, because it states the reason.
  Result<void> receive(Bytes bytes, Block* block, Time now);

  // ---- Streams ----
  GrpcStream* find(std::uint32_t call) const noexcept { return streams_.find(call); }
  std::size_t used_streams() const noexcept { return streams_.used(); }
  // Calls `use` for each stream in use. It may end streams.
  template <class Use>
  void for_each(Use use) const {
    streams_.for_each(use);
  }
  // The session does not use the stream any more.
  void release_stream(GrpcStream& stream) noexcept;

  // Client: begins a request. It waits within the machine while the server's MAX_CONCURRENT_STREAMS streams are open.
  // Null if HTTP/2 has no more stream ids, or the slots are used up. `fields` are copied.
  GrpcStream* begin_request(std::span<const Field> fields);

  // Queues a message: its prefix and beginning in `head`, and pieces on loan from `owner`, which is notified later.
  // Server: begins the response if it has not begun. `credit` is reported when the last byte has left the queue.
  void send_message(GrpcStream& stream, Buffer head, std::span<const ConstBuffer> pieces, SendCompletion* owner,
                    std::uint32_t credit);
  // Server: sends the initial metadata before the first message, if they have not been sent.
  void send_headers(GrpcStream& stream) { submit_headers(stream, false); }
  // Server: ends the response with a status, after the queued messages. GrpcStream::trailers are sent with it.
  void send_status(GrpcStream& stream, int status, std::string_view text);
  // Copies the memory that is still on loan from `owner`, which is not notified any more.
  void copy_and_release(SendCompletion& owner);
  // The result of on_packed(), whose charge has been released; ignored if the stream does not wait for it any more. May
  // deliver more. Not from within receive(), except from on_packed().
  void unpacked(std::uint32_t call, Result<Buffer> message);
  // MachineSink::may_unpack() is true from now on, or there may be memory. May deliver messages. True if a message of
  // the call still waits.
  bool release_packed(std::uint32_t call);
  // The whole message, which lies in the memory that is being received, is used later. On failure, on_bad() of the sink
  // has been called. Messages of at most held_bytes_least are always held: the number of streams bounds them.
  bool hold_message(GrpcStream& stream);
  static constexpr std::size_t held_bytes_least = 1024;
  // The receiver has `bytes` less of the stream's items. May deliver more.
  void release(GrpcStream& stream, std::size_t bytes);

  // The connection has ended: closes all streams. Nothing is received or sent any more.
  void close_all(const Error& why);
  // Streams, windows and queued frames, for pages.
  std::string describe() const;

 private:
  using Callbacks = http2::Http2Callbacks<GrpcMachine>;
  friend Callbacks;

  // ---- For Http2Callbacks ----
  GrpcStream* take_stream();
  std::size_t add_field(GrpcStream& stream, std::string_view name, std::string_view value);
  static bool drop_interim(GrpcStream& stream) noexcept;
  void on_head(GrpcStream& stream);
  void on_data(GrpcStream& stream, Bytes bytes, Block* block);
  void on_remote_end(GrpcStream& stream);
  int send_trailers(const GrpcStream& stream);
  void on_sent(GrpcStream& stream, std::uint32_t credit) { sink_.on_sent(stream, credit); }
  void on_goaway(std::int32_t last, std::uint32_t http2_code, std::string_view text) {
    sink_.on_goaway(last, http2_code, text);
  }
  void on_pong(bool of_goaway) { sink_.on_pong(of_goaway); }
  void close_stream(http2::Http2Stream& closed, std::uint32_t http2_code) override;

  void recycle(GrpcStream& stream) noexcept;
  void charge_fields(GrpcStream& stream) noexcept;
  void take_bytes(GrpcStream& stream, Bytes bytes, Block* block);
  void take_message(GrpcStream& stream);
  void take_packed(GrpcStream& stream);
  void unpack_message(GrpcStream& stream, Bytes packed, Buffer memory, detail::ReceiveCharge charge);
  void hold_packed(GrpcStream& stream, Bytes packed, Buffer memory, detail::ReceiveCharge charge);
  bool unpack_later(GrpcStream& stream, Bytes packed, Buffer& memory, detail::ReceiveCharge& charge,
                    std::optional<std::size_t> announced);
  void continue_behind_packed(std::uint32_t call);
  void accept_message(GrpcStream& stream, Bytes message, Block* block, Buffer unpacked, detail::ReceiveCharge charge);
  void take_stalled(GrpcStream& stream);
  void stall(GrpcStream& stream, Bytes bytes);
  void deliver_end(GrpcStream& stream);
  void keep_unkept();
  void keep(GrpcStream& stream);
  void bad(GrpcStream& stream, const Error& why);
  // Nothing that has come on the stream is used, and nothing that comes.
  void drop_input(GrpcStream& stream) noexcept;
  void submit_headers(GrpcStream& stream, bool end);

  const std::size_t message_bytes_max_;
  const bool keeps_plain_;
  MachineSink& sink_;
  detail::ReceiveAccount* const account_;
  http2::StreamTable<GrpcStream> streams_;
  std::vector<GrpcStream*> unkept_;  // Streams that had a message in the memory that is being received. Some twice.
  std::size_t unpacked_ = 0;         // Bytes that were decompressed in place since receive() or its like began.
};

}  // namespace hawser::protocol::grpc
