#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"
#include "table/slot_table.h"

struct io_uring_sqe;

namespace hawser::exec {

// The io_uring of a loop: the kernel executes operations, and the poller delivers their completions. Loop's thread
// only. Operations may be started before the loop runs; the kernel receives them when the loop waits. A loop that runs
// on another thread than before gets a new ring, with the same operations.
class IoUring {
 public:
  struct Completion {
    int result;  // Result of the system call, or -errno.
    bool more;   // The operation continues; otherwise it has ended, and its token is stale.
    Bytes data;  // Received bytes. Valid during the call.
  };
  // Receives the completions of an operation. An operation that ended without cancel() (-ECANCELED when its thread has
  // ended, -ENOBUFS when no buffer was free) may be started again.
  class Handler {
   public:
    virtual void on_completion(const Completion& completion) = 0;

   protected:
    ~Handler() = default;
  };
  using Token = std::uint64_t;
  static constexpr Token none = 0;

  // Buffers that the kernel selects for receiving. All of them together fit a second-level cache.
  static constexpr unsigned buffers = 128;
  static constexpr unsigned buffer_bytes = 8 * 1024;

  // The error names what this kernel lacks or forbids.
  static Result<std::unique_ptr<IoUring>> make();
  ~IoUring();
  IoUring(const IoUring&) = delete;
  IoUring& operator=(const IoUring&) = delete;

  // Receives all bytes into the ring's buffers, until the stream ends.
  Token receive(int fd, Handler& handler) { return add({&handler, fd, 0, Kind::receive}); }
  // Completes once when `fd` is ready for one of `events` (POLLIN, POLLOUT, ...). The result has the ready events.
  Token poll(int fd, unsigned events, Handler& handler) { return add({&handler, fd, events, Kind::poll}); }
  // Completes each time that `fd` becomes ready: edge-triggered.
  Token poll_always(int fd, unsigned events, Handler& handler) {
    return add({&handler, fd, events, Kind::poll_always});
  }

  // Requests the end of the operation. The handler receives a last completion, and may receive others before it.
  // Allocates nothing.
  void cancel(Token token) noexcept;
  // Ends operations without further completions. Their descriptors may be closed at once, because the kernel has
  // released them, if this is the thread to which the ring is bound. `none` and stale tokens are ignored.
  void forget(std::initializer_list<Token> tokens) noexcept;

  // Called by the poller. Lets the kernel work, and waits at most `timeout` for a completion.
  void enter(Duration timeout);
  // Delivers the completions that have arrived to their handlers. Returns their number.
  std::size_t deliver();

 private:
  enum class Kind : std::uint8_t { receive, poll, poll_always };
  struct Operation {
    Handler* handler = nullptr;
    int fd = -1;
    unsigned events = 0;
    Kind kind = Kind::receive;
    bool armed = false;  // The kernel has the operation, or its submission is queued.
    bool cancelling = false;
  };
  // The operations lie in a table of slots, which are linked into the queues by index, so that only add() allocates. A
  // slot stays in a queue when its operation is released. No slot has this index.
  static constexpr std::uint32_t nowhere = UINT32_MAX;
  struct Slot {
    Operation operation;
    std::uint32_t next_to_arm = nowhere;
    std::uint32_t next_to_cancel = nowhere;
    bool to_arm = false;  // In the queue to_arm_, possibly for an operation that has been released since.
    bool to_cancel = false;
  };
  struct Queue {
    std::uint32_t first = nowhere;
    std::uint32_t last = nowhere;
  };

  struct Ring;  // State that the kernel shares. Bound to the thread that first enters it.

  explicit IoUring(std::unique_ptr<Ring> ring) noexcept;
  static Token token_of(std::size_t index, std::uint32_t generation) noexcept {
    return (Token{generation} << 32) | (index + 1);
  }
  Token add(Operation operation);
  static std::uint32_t index_of(Token token) noexcept { return static_cast<std::uint32_t>(token) - 1; }
  Slot* find(Token token) noexcept { return slots_.find(index_of(token), static_cast<std::uint32_t>(token >> 32)); }
  void queue_arm(std::uint32_t index) noexcept;
  void queue_cancel(std::uint32_t index) noexcept;
  void arm(std::uint32_t index) noexcept;
  ::io_uring_sqe* next_sqe() noexcept;
  void submit_queued();
  void bind_to_this_thread();
  bool deliver_one(Token token, int result, unsigned flags);
  void recycle(unsigned short buffer) noexcept;

  std::unique_ptr<Ring> ring_;
  std::uint64_t thread_ = 0;  // Number of the thread to which ring_ is bound; 0 if it is not bound.
  table::SlotTable<Slot> slots_;
  Queue to_arm_;
  Queue to_cancel_;
};

}  // namespace hawser::exec
