#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"

namespace hawser::transport {

// What a connection can do. Constant for its life.
struct Capabilities {
  std::size_t head_bytes_max = 0;     // Of one message's head: what reserve() can be asked for.
  std::size_t message_bytes_max = 0;  // Head and payload together; from the MessageLimits of both sides or of one.
  // Payloads from here on are received straight into their final place: MessageSink::select_receive_buffer() is asked
  // about them, unless they have come whole beside their heads already.
  std::size_t receive_buffer_bytes_min = 0;
  bool gathers = false;  // Payload pieces are sent from where they lie, uncopied.
  // Pays MessageSink::receive_account() for memory when it is taken, and discards what that refuses. Without it,
  // whoever is asked where a payload goes pays for all of it then.
  bool charges = false;
  bool remote_memory = false;  // One-sided reads and writes: Connection::remote_memory().
};

// A received message. The views are valid during MessageSink::on_message(); keep_*() makes them last.
struct Message {
  Bytes head;
  Bytes payload;
  // Hold `head` and `payload`; null for memory that is reused afterwards, which must be copied to last. Null too for a
  // payload that lies in memory that select_receive_buffer() gave.
  Block* head_block = nullptr;
  Block* payload_block = nullptr;
  bool discarded = false;  // There was a payload, which select_receive_buffer(), revoke_receive_buffer() or the account
                           // had discarded.
  bool cut =
      false;  // Only the beginning of the head is here, 4 KiB or more: the account refused the rest. Discarded too.

  Buffer keep_head() const { return Buffer::keep(head_block, head.data(), head.size()); }
  Buffer keep_payload() const { return Buffer::keep(payload_block, payload.data(), payload.size()); }
};

// Where a payload goes.
struct ReceiveBuffer {
  enum class Kind : std::uint8_t {
    own,      // A buffer of the transport's.
    given,    // `memory`, which has at least the payload's size and stays valid until on_message() or
              // revoke_receive_buffer().
    discard,  // Nowhere: on_message() gets an empty payload.
  };
  Kind kind = Kind::own;
  MutableBytes memory;
};

class RemoteMemory;

// Takes what a connection receives. Called on its loop; must not destroy the connection from within a call.
class MessageSink {
 public:
  virtual void on_message(const Message& message) = 0;
  // A payload of at least Capabilities::receive_buffer_bytes_min is about to come: where to?
  virtual ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) = 0;
  // Pays for what is received. Null: nothing is counted. Asked when the connection starts; outlives it.
  virtual detail::ReceiveAccount* receive_account() noexcept { return nullptr; }
  // The backlog, once past the mark that set_high_watermark() named, has fallen to half of it.
  virtual void on_drained() = 0;
  // The last call. Messages committed and not sent by then are lost. The scope of `reason` is `transport` if the peer
  // may live and be reached otherwise, `connection` if it is gone, has closed, or broke the protocol.
  virtual void on_closed(const Error& reason) = 0;

 protected:
  ~MessageSink() = default;
};

// The transport seam: messages of a contiguous head and a gathered payload, in order, reliably, or an end. Belongs to
// one loop and its thread. What one tick commits leaves together at the end of the tick.
class Connection {
 public:
  virtual ~Connection() = default;

  virtual std::string_view transport() const noexcept = 0;  // "tcp", "sim", "rdma", ...
  virtual Capabilities capabilities() const noexcept = 0;
  virtual std::string peer() const = 0;

  // One-sided access to what the peer has exposed; null where there is none, and once the connection has ended.
  virtual RemoteMemory* remote_memory() noexcept { return nullptr; }

  // From now on messages are delivered. Once.
  virtual void start(MessageSink& sink) = 0;

  // Room for a message's head, of any alignment, to be filled and committed before anything else is done here. Null
  // once the connection has ended or is closing. `head_bytes` is at most Capabilities::head_bytes_max.
  virtual std::byte* reserve(std::size_t head_bytes) = 0;
  // Sends the reserved head and the payload. The pieces' memory is borrowed until `owner` is told; without an owner
  // it is copied, or must live as long as the process. An owner may be told before this returns; it may send more or
  // end the connection from within.
  virtual void commit(std::size_t head_bytes, std::span<const ConstBuffer> payload, SendCompletion* owner) = 0;
  // Copies what is still borrowed of `owner`, who is not told any more.
  virtual void copy_and_release(SendCompletion& owner) = 0;

  // Gives back the memory that select_receive_buffer() gave for the payload now coming, whose rest is discarded.
  // Afterwards the transport does not touch it any more.
  virtual void revoke_receive_buffer(const std::byte* memory) noexcept = 0;

  // Positions in the order of sending, in units of the transport's: what was committed when committed() was p can't
  // have reached the peer whole as long as sent() is less than p. Both stay after the end.
  virtual std::uint64_t committed() const noexcept = 0;
  virtual std::uint64_t sent() const noexcept = 0;
  // Bytes received so far, also those of a message that is not whole yet.
  virtual std::uint64_t arrived() const noexcept = 0;

  // Bytes committed that have not left yet.
  virtual std::size_t backlog() const noexcept = 0;
  virtual void set_high_watermark(std::size_t bytes) noexcept = 0;

  // While paused no message is delivered and the peer is held back.
  virtual void pause() noexcept = 0;
  virtual void resume() = 0;
  virtual bool paused() const noexcept = 0;

  // Sends what was committed now rather than at the end of the tick.
  virtual void flush() = 0;
  // Tries to send what is committed, then ends; on_closed() follows unless the connection is destroyed first.
  virtual void close() = 0;
  // Ends at once: what is committed is dropped, whoever lent memory is told, and the sink is not called any more. May
  // be called from within a callback.
  virtual void abort() noexcept = 0;
};

}  // namespace hawser::transport
