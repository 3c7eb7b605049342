#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hawser/bytes.h"
#include "pipe/send_queue.h"

namespace hawser::protocol::http2 {

// The bytes that one stream has to send, in order. They wait for the peer's windows, and for room in the queue of the
// connection.
class StreamOutput {
 public:
  // Parts up to this size are copied next to the headers of their frames; longer parts stay where they are.
  static constexpr std::size_t copied_bytes_max = 2048;

  // Queues `head`, and behind it pieces on loan from `owner`, which is notified after the last one. Without an owner,
  // the pieces are copied. `credit` is returned by move_to() when the last byte has left. Returns false if there was
  // nothing to borrow, so that `owner` will not be notified. Without memory it throws, and nothing is queued.
  bool add(Buffer head, std::span<const ConstBuffer> pieces, SendCompletion* owner, std::uint32_t credit);
  // Moves the next `count` bytes to `queue`. Returns the credit of all chunks that have left.
  std::uint32_t move_to(pipe::SendQueue& queue, std::size_t count);
  // Drops everything and notifies the owners. Earlier parts of their memory may be in `queue`, which copies them.
  // Returns false if there is no memory for that: `queue` is empty then, and the connection must end.
  bool drop(pipe::SendQueue& queue) noexcept;
  // Copies the memory that is on loan from `owner`, which is not notified any more.
  void copy_and_release(const SendCompletion& owner);
  // The object is used for another stream from now on. Nothing is queued.
  void restart() noexcept { taken_ = 0; }

  // Bytes that are queued.
  std::size_t bytes() const noexcept { return bytes_; }
  // Bytes that have left the queue.
  std::uint64_t taken() const noexcept { return taken_; }

 private:
  struct Chunk {
    Buffer own;                       // Or
    ConstBuffer loan;                 // a piece of the memory of `owner`.
    SendCompletion* owner = nullptr;  // Notified after this piece, if `last`.
    bool last = false;
    std::uint32_t credit = 0;
  };

  void clear_chunks() noexcept;

  std::vector<Chunk> chunks_;  // The queued ones begin at first_.
  std::size_t first_ = 0;
  std::size_t offset_ = 0;  // Bytes of the first chunk that have left.
  std::size_t bytes_ = 0;
  std::uint64_t taken_ = 0;
  bool has_loans_ = false;
};

}  // namespace hawser::protocol::http2
