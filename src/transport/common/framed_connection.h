#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hawser/loop.h"
#include "hawser/transport/connection.h"
#include "hawser/transport/poller.h"
#include "hawser/transport/stream.h"
#include "pipe/buffered_stream.h"
#include "pipe/receive_block.h"
#include "pipe/stream_state.h"
#include "transport/common/backlog_watermark.h"
#include "transport/common/link_facts.h"
#include "transport/common/payload_buffer.h"
#include "transport/common/unread_charge.h"
#include "wire/message.h"

namespace hawser::transport {

struct FramedOptions {
  // Limit of a received message with its prefix. A longer message ends the connection.
  wire::MessageLimit message_limit{std::size_t{64} << 20};
};

// Sends messages over a byte stream, each after its prefix (wire/message.h).
class FramedConnection final : public Connection, public LinkFactsSource, StreamSink, exec::TickEnd {
 public:
  // Small messages are received one after another into blocks of this size and read there.
  static constexpr std::size_t receive_block_bytes = 256 * 1024;
  // A payload of this size or more is received into memory of its own.
  static constexpr std::size_t receive_buffer_bytes_min = 32 * 1024;
  // A message with a payload in memory of its own is likely to be followed by another one. Only so much of the next
  // message is received before its receive buffer is known, because that part must be copied there.
  static constexpr std::size_t probe_bytes = 4 * 1024;
  // Length of the beginning of a head that is delivered if the rest of the head is discarded.
  static constexpr std::size_t cut_head_bytes = 4 * 1024;

  // `stream` must have been started on `loop`. It may be paused.
  FramedConnection(Loop& loop, std::unique_ptr<Stream> stream, FramedOptions options);
  ~FramedConnection();

  // Sends bytes without a prefix before all messages: the last part of a handshake.
  void send_preface(Bytes bytes);

  std::string_view transport() const noexcept override { return transport_; }
  Capabilities capabilities() const noexcept override;
  std::string peer() const override { return stream_.closed() ? std::string() : stream_->peer(); }

  void start(MessageSink& sink) override;
  std::byte* reserve(std::size_t head_bytes) override;
  void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) override;
  void copy_and_release(SendCompletion& owner) override { stream_.queue().copy_and_release(owner); }
  void revoke_receive_buffer(const std::byte* memory) noexcept override;
  std::uint64_t committed() const noexcept override { return committed_; }
  std::uint64_t sent() const noexcept override { return stream_.sent(); }
  std::uint64_t arrived() const noexcept override { return arrived_; }
  std::optional<LinkFacts> link_facts() const noexcept override { return link_facts_of(stream_.get()); }
  std::string link_details() const override { return link_details_of(stream_.get()); }
  std::size_t backlog() const noexcept override { return stream_.backlog(); }
  void set_high_watermark(std::size_t bytes) noexcept override { watermark_.set(bytes, stream_.backlog()); }
  void pause() noexcept override;
  void resume() override;
  bool paused() const noexcept override { return paused_; }
  void flush() override;
  void close() override;
  void abort() noexcept override;

 private:
  // The message that is being received, once the receive buffer of its payload has been selected.
  struct IncomingPayload {
    Buffer head;
    PayloadBuffer payload;
    std::size_t size = 0;  // Bytes of the payload; if the head is cut, plus the rest of the head.
    std::size_t done = 0;  // Bytes of `size` that have been received.
    bool cut = false;      // The rest of the head is discarded too.
  };

  MutableBytes receive_space() override;
  void received(std::size_t bytes) override;
  void received_nothing() noexcept override { incoming_.payload.leave(); }
  void sendable(std::size_t bytes) override;
  void broken(const Error& reason) override;
  void ended(const Error& reason) override;
  void on_tick_end() override { flush(); }

  // The parts of commit(): the head behind its prefix, the payload, and what follows.
  void commit_head(std::size_t head_bytes, std::size_t payload_bytes);
  void commit_payload(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner);
  void send_soon(std::size_t message_bytes);
  void send_queued() {
    segment_fill_.sent();
    stream_.send();
  }
  void take_messages();
  bool take_one();
  bool begin_payload(Bytes head, std::size_t payload_bytes);
  void end_payload();
  void begin_cut();
  bool prepare_block();
  bool extend_block();
  MutableBytes payload_space();
  void settle_block();
  void take(std::size_t bytes);
  void fail_without_memory() noexcept;
  void drop_idle_block() noexcept {
    if (!receiving_payload_) block_.drop_if_empty();
  }
  void park();
  void fail(const Error& reason);
  void drained();

  Loop& loop_;
  pipe::BufferedStream stream_;  // Closed once the connection has ended.
  pipe::BufferedStream::SegmentFill segment_fill_;
  const std::string_view transport_;
  const FramedOptions options_;
  MessageSink* sink_ = nullptr;
  hawser::detail::ReceiveAccount* account_ = nullptr;  // Null: nothing is charged.

  std::uint64_t committed_ = 0;  // Bytes since the start, as is arrived_.
  std::uint64_t arrived_ = 0;
  pipe::StreamState state_;
  bool paused_ = false;
  bool taking_ = false;  // take_messages() is running.
  BacklogWatermark watermark_;

  pipe::ReceiveBlock block_;
  UnreadCharge unread_;     // Counts block_ while the connection is paused and memory is used up.
  std::size_t wanted_ = 0;  // Contiguous bytes that the current message needs in block_; 0 if not known.
  bool receiving_payload_ = false;
  bool payload_last_ = false;  // The payload of the last message had memory of its own.
  IncomingPayload incoming_;
};

}  // namespace hawser::transport
