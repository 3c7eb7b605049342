#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "hawser/loop.h"
#include "hawser/transport/stream.h"
#include "pipe/send_queue.h"

namespace hawser::pipe {

// A stream with the queue of the bytes that wait to be sent on it. Its owner is the stream's sink: it passes on
// sendable(), and calls send() at the end of the tick, and before that when early() is true, or its SegmentFill. Loop's
// thread only.
class BufferedStream {
 public:
  // A connection does not wait for the end of the tick once this many bytes are queued, so that the peer can start.
  static constexpr std::size_t early_flush_bytes = 32 * 1024;
  // The same for messages that a SegmentFill counts. The kernel passes TCP data on in segments of up to 64 KiB with
  // their headers, so that a send that is a little longer costs as much as two.
  static constexpr std::size_t early_segment_bytes = 62 * 1024;
  // A message takes the peer as long as so many bytes more: the peer of small messages starts after fewer bytes.
  static constexpr std::size_t early_message_bytes = 160;

  explicit BufferedStream(std::unique_ptr<transport::Stream> stream);
  BufferedStream(const BufferedStream&) = delete;
  BufferedStream& operator=(const BufferedStream&) = delete;
  ~BufferedStream() { close_now(); }

  // Null once it has been closed.
  transport::Stream* get() const noexcept { return stream_.get(); }
  transport::Stream* operator->() const noexcept { return stream_.get(); }
  bool closed() const noexcept { return stream_ == nullptr; }

  SendQueue& queue() noexcept { return queue_; }
  const SendQueue& queue() const noexcept { return queue_; }
  std::size_t backlog() const noexcept { return queue_.bytes(); }
  // For an owner without a SegmentFill.
  bool early() const noexcept { return queue_.bytes() >= early_flush_bytes; }
  // True while the stream does not accept more: sendable() follows.
  bool blocked() const noexcept { return blocked_; }
  // True within send() and sendable(). send() also sends what a notified owner queues, so another one has no effect.
  bool sending() const noexcept { return sending_; }
  // Bytes that the stream has accepted so far.
  std::uint64_t sent() const noexcept { return sent_; }

  // Sends the queue until it is empty, or the stream accepts no more, or is closed.
  void send() {
    send_produced([] {});
  }
  // Likewise. `produce` is called before each part is sent and may queue more, for protocols that decide late what is
  // sent next. It may close the stream.
  template <class Produce>
  void send_produced(Produce&& produce) {
    if (std::exchange(sending_, true)) return;
    while (!blocked_ && !closed()) {
      produce();
      if (closed() || queue_.empty() || !send_part()) break;
    }
    sending_ = false;
  }
  // See StreamSink::sendable(). The owner sends afterwards.
  void sendable(std::size_t bytes) noexcept;

  // Ends the stream's use. The loop destroys the stream, so that this may be called from within a function of the
  // stream, and so that a socket is closed soon even if somebody still holds the owner. Needs no memory. The queue is
  // left to the owner.
  void close(Loop& loop) noexcept;
  // Destroys the stream at once, and drops the queue. Not from within a function of the stream.
  void close_now() noexcept;

  // Decides in place of early() for an owner whose stream has messages, so that a send fills a segment of the kernel.
  class SegmentFill {
   public:
    // Counts a message of `bytes` bytes, which `queue` has already. True if another message of that length would be too
    // much: the owner sends, and calls sent().
    [[nodiscard]] bool add(std::size_t bytes, const SendQueue& queue) noexcept {
      messages_bytes_ += early_message_bytes;
      return queue.bytes() + bytes + messages_bytes_ >= early_segment_bytes;
    }
    void sent() noexcept { messages_bytes_ = 0; }

   private:
    std::size_t messages_bytes_ = 0;  // early_message_bytes for each message since sent().
  };

 private:
  // Allocated in advance, because a connection must be able to end without memory.
  struct Closing final : detail::Posted {
    void run() override { stream.reset(); }
    std::unique_ptr<transport::Stream> stream;
  };

  bool send_part();
  bool send_pieces();
  bool on_accepted(std::size_t accepted, std::size_t offered);

  SendQueue queue_;
  std::unique_ptr<transport::Stream> stream_;
  std::unique_ptr<Closing> closing_;  // Non-null until close().
  bool blocked_ = false;
  bool sending_ = false;
  std::uint64_t sent_ = 0;
};

}  // namespace hawser::pipe
