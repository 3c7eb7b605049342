#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"

namespace hawser {
struct Identity;
}

namespace hawser::transport {

// The capabilities of a connection. Constant for its life.
struct Capabilities {
  std::size_t head_bytes_max = 0;     // Limit of one message's head, thus of reserve().
  std::size_t message_bytes_max = 0;  // Head and payload together; from the MessageLimits of both sides or of one.
  // Payloads of this size and above are received directly into the buffer that MessageSink::select_receive_buffer()
  // selects, unless they have arrived whole together with their heads.
  std::size_t receive_buffer_bytes_min = 0;
  // Only the processors of both sides move payloads, by copies. So two short messages on their way keep both sides
  // busy, and a message behind them waits for a shorter time than behind long ones.
  bool copies_only = false;
  bool gathers = false;  // The parts of a payload are sent from the caller's memory without a copy.
  // The connection charges MessageSink::receive_account() for memory when it allocates it, and discards payloads that
  // the account refuses. Otherwise the session charges the whole payload in select_receive_buffer().
  bool charges = false;
  bool remote_memory = false;           // One-sided reads and writes: Connection::remote_memory().
  bool guards_receive_buffers = false;  // The connection uses ReceiveBuffer::guard.
};

// A received message. The views are valid during MessageSink::on_message(). keep_head() and keep_payload() make buffers
// that last.
struct Message {
  Bytes head;
  Bytes payload;
  // The blocks that hold `head` and `payload`. Null if the memory is reused afterwards and must be copied to last, and
  // for a payload in memory that select_receive_buffer() gave.
  Block* head_block = nullptr;
  Block* payload_block = nullptr;
  // There was a payload. It was discarded by select_receive_buffer(), revoke_receive_buffer() or the account.
  bool discarded = false;
  // Only the beginning of the head is here, 4 KiB or more, because the account refused the rest. `discarded` is set,
  // too.
  bool cut = false;

  Buffer keep_head() const { return Buffer::keep(head_block, head.data(), head.size()); }
  Buffer keep_payload() const { return Buffer::keep(payload_block, payload.data(), payload.size()); }
};

// Guards memory that another thread may withdraw. Between enter() and leave() the memory is not withdrawn. No function
// of the application or of the session runs in between.
class ReceiveGuard {
 public:
  // False if the memory has been withdrawn: it must not be accessed any more.
  virtual bool enter() noexcept = 0;
  virtual void leave() noexcept = 0;

 protected:
  ~ReceiveGuard() = default;
};

// The memory for a payload that is about to arrive.
struct ReceiveBuffer {
  enum class Kind : std::uint8_t {
    own,      // The transport allocates a buffer.
    given,    // `memory`, which has at least the payload's size and stays valid until on_message() or
              // revoke_receive_buffer().
    discard,  // The payload is discarded: on_message() gets an empty one.
  };
  Kind kind = Kind::own;
  MutableBytes memory;
  // With `given` and Capabilities::guards_receive_buffers alone: the memory is accessed only between enter() and
  // leave(). If enter() fails, the rest of the payload is discarded. Valid as long as the memory.
  ReceiveGuard* guard = nullptr;
};

class OneSidedMemory;

// Receives the messages of a connection. Called on its loop. Must not destroy the connection from within a call.
class MessageSink {
 public:
  virtual void on_message(const Message& message) = 0;
  // Selects the memory for a payload of at least Capabilities::receive_buffer_bytes_min that is about to arrive.
  virtual ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) = 0;
  // The account that is charged for received memory. It outlives the connection, which calls this when it starts. Null:
  // nothing is charged.
  virtual detail::ReceiveAccount* receive_account() noexcept { return nullptr; }
  // The backlog was above the high watermark and has fallen to half of it.
  virtual void on_drained() = 0;
  // The connection has ended. This is the last call. Messages that were committed and not sent are lost. The scope of
  // `reason` is `transport` if the peer may be alive and be reached over another transport. It is `connection` if the
  // peer has ended or closed the connection, or has violated the protocol.
  virtual void on_closed(const Error& reason) = 0;

 protected:
  ~MessageSink() = default;
};

// Carries messages between two peers in order and reliably, until it ends. A message has a contiguous head, and a
// payload that is gathered from several places. Belongs to one loop and its thread. Messages that one tick commits are
// sent together at its end.
class Connection {
 public:
  virtual ~Connection() = default;

  virtual std::string_view transport() const noexcept = 0;  // "tcp", "sim", "rdma", ...
  virtual Capabilities capabilities() const noexcept = 0;
  virtual std::string peer() const = 0;
  // Who the peer has proved to be by means of this transport, such as the process at the other end of shared memory.
  // Null: nothing beyond Stream::identity(), which comes first. Constant from open() on.
  virtual std::shared_ptr<const Identity> identity() const { return nullptr; }

  // One-sided access to memory that the peer has exposed. Null if the transport has none, and after the end.
  virtual OneSidedMemory* remote_memory() noexcept { return nullptr; }

  // Delivers messages from now on. Called once.
  virtual void start(MessageSink& sink) = 0;

  // Reserves memory of any alignment for the head of a message. The caller fills and commits it before it calls another
  // function of this object. Null if the connection has ended or is closing. `head_bytes` is at most
  // Capabilities::head_bytes_max.
  virtual std::byte* reserve(std::size_t head_bytes) = 0;
  // Sends the reserved head and the payload. The payload's memory is on loan until `owner` is notified, possibly before
  // this returns. Without an owner the payload is copied, or its memory lasts as long as the process. An owner may send
  // more messages or end the connection from within the notification.
  virtual void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) = 0;
  // Copies the payloads that are still on loan from `owner`, which is not notified any more.
  virtual void copy_and_release(SendCompletion& owner) = 0;

  // Returns the memory that select_receive_buffer() gave for the payload that is arriving. Its rest is discarded.
  // Afterwards the transport does not access the memory any more.
  virtual void revoke_receive_buffer(const std::byte* memory) noexcept = 0;

  // Positions in the order of sending, in units of the transport. If committed() is p after a message, the peer cannot
  // have the whole message while sent() is less than p. Both keep their values after the end.
  virtual std::uint64_t committed() const noexcept = 0;
  virtual std::uint64_t sent() const noexcept = 0;
  // Bytes received so far, including those of a message that is not complete.
  virtual std::uint64_t arrived() const noexcept = 0;

  // Bytes that were committed and have not been sent.
  virtual std::size_t backlog() const noexcept = 0;
  virtual void set_high_watermark(std::size_t bytes) noexcept = 0;

  // While the connection is paused, no message is delivered, and flow control stops the peer.
  virtual void pause() noexcept = 0;
  virtual void resume() = 0;
  virtual bool paused() const noexcept = 0;

  // Sends the committed messages now instead of at the end of the tick.
  virtual void flush() = 0;
  // Sends the committed messages as far as possible, then ends. on_closed() follows, unless the connection is destroyed
  // first.
  virtual void close() = 0;
  // Ends at once: committed messages are dropped, the owners of loans are notified, and the sink is not called any
  // more. May be called from within a callback.
  virtual void abort() noexcept = 0;
};

}  // namespace hawser::transport
