#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "block/nbd/reply.h"
#include "block/nbd/request.h"
#include "block/store/aligned_buffer.h"
#include "hawser/bytes.h"
#include "hawser/socket_stream.h"
#include "hawser/sync.h"

namespace hawser::block::nbd {

// Counts memory of requests by permits of a Semaphore.
inline constexpr std::size_t memory_permit_bytes = 4096;
constexpr std::size_t memory_permits(std::size_t bytes) noexcept {
  return (bytes + memory_permit_bytes - 1) / memory_permit_bytes;
}

// A request in progress, until its reply has been sent.
struct PendingRequest {
  NbdRequest request;
  Permit slot;    // One of the connection's requests.
  Permit bytes;   // A part of the connection's bytes.
  Permit memory;  // A part of the bytes of all connections.
  std::optional<AlignedBuffer> data;
  ReplyHead reply;
  bool sends_data = false;

  std::size_t data_bytes() const noexcept { return data ? data->size() : 0; }
  // As the semaphores count them.
  std::size_t memory_bytes() const noexcept { return memory_permits(data_bytes()) * memory_permit_bytes; }
  std::size_t reply_bytes() const noexcept { return reply.bytes().size() + (sends_data ? data_bytes() : 0); }
};

// Replies of requests that were executed at once, one behind the other in one memory. The memory is used again when all
// of them have been sent, and so are the slots of their requests.
class ReplyBatch {
 public:
  static constexpr std::size_t bytes_max = 128 * 1024;

  std::size_t room() const noexcept { return bytes_max - end_; }
  // Memory of the next reply, of at most room() bytes.
  MutableBytes memory(std::size_t bytes);
  // The reply in this memory is sent.
  void add(std::size_t bytes, Permit slot);
  Bytes unsent() const noexcept { return Bytes(memory_.get() + begin_, end_ - begin_); }
  void sent(std::size_t bytes) noexcept;
  void clear() noexcept { sent(end_ - begin_); }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t begin_ = 0;  // Replies that were not sent: [begin_, end_).
  std::size_t end_ = 0;
  std::vector<Permit> slots_;
};

// Replies that wait to be sent, in their order.
class ReplyQueue {
 public:
  void push(std::unique_ptr<PendingRequest> pending);
  // For replies of at most the room that it has. Without room while other replies wait, since it is sent before them.
  ReplyBatch& batch() noexcept { return batch_; }
  std::size_t batch_room() const noexcept { return queue_.empty() ? batch_.room() : 0; }
  // Sends what the socket takes.
  void send(SocketStream& socket);
  void clear() noexcept;
  bool empty() const noexcept { return batch_.unsent().empty() && queue_.empty(); }
  // Memory that waits for the client.
  std::size_t held_bytes() const noexcept { return held_bytes_; }
  std::size_t unsent_bytes() const noexcept { return batch_.unsent().size() + queued_bytes_ - front_sent_; }
  // Bytes of all replies so far.
  std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }

 private:
  void sent(std::size_t bytes);

  ReplyBatch batch_;
  std::deque<std::unique_ptr<PendingRequest>> queue_;
  std::size_t front_sent_ = 0;  // Bytes of the first reply of the queue that have been sent.
  std::size_t held_bytes_ = 0;
  std::size_t queued_bytes_ = 0;  // Bytes of the replies in the queue, with the part that has been sent.
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace hawser::block::nbd
