#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "hawser/time.h"

struct io_uring_sqe;

namespace hawser::exec {

// A loop's ring: operations that the kernel carries out by itself and whose completions the poller delivers. Loop's
// thread only. Operations may be started before the loop runs; the kernel learns of them when it waits. A loop that
// runs on another thread than before gets a new ring, with the same operations.
class IoUring {
 public:
  struct Completion {
    int result;  // As the system call gives it, or -errno.
    bool more;   // The operation goes on; else it is over, and its token stale.
    Bytes data;  // What was received. Valid during the call.
  };
  // Is told of an operation's completions. One that is over although nobody cancelled it (-ECANCELED when its thread
  // has ended, -ENOBUFS when buffers ran out) may be started again.
  class Handler {
   public:
    virtual void on_completion(const Completion& completion) = 0;

   protected:
    ~Handler() = default;
  };
  using Token = std::uint64_t;
  static constexpr Token none = 0;

  // Buffers that the kernel picks for receiving: all of them fit a second-level cache.
  static constexpr unsigned buffers = 128;
  static constexpr unsigned buffer_bytes = 8 * 1024;

  // The error says what this kernel lacks or forbids.
  static Result<std::unique_ptr<IoUring>> make();
  ~IoUring();
  IoUring(const IoUring&) = delete;
  IoUring& operator=(const IoUring&) = delete;

  // Receives all that comes, into the ring's buffers, until the stream ends.
  Token receive(int fd, Handler& handler) { return add({&handler, 0, fd, 0, Kind::receive}); }
  // Tells once when `fd` is ready for one of `events` (POLLIN, POLLOUT, ...), with those as result.
  Token poll(int fd, unsigned events, Handler& handler) { return add({&handler, 0, fd, events, Kind::poll}); }
  // Tells whenever it becomes so: edge-triggered.
  Token poll_always(int fd, unsigned events, Handler& handler) {
    return add({&handler, 0, fd, events, Kind::poll_always});
  }

  // Asks for the operation's end, of which the handler is told; further completions may come before. Allocates nothing.
  void cancel(Token token) noexcept;
  // Ends operations whose handlers are not told any more. Their descriptors may be closed at once: the kernel has let
  // go of them, unless the loop does not run on this thread. Tokens that are none or stale are ignored.
  void forget(std::initializer_list<Token> tokens) noexcept;

  // For the poller: lets the kernel work, and waits at most `timeout` for a completion.
  void enter(Duration timeout);
  // Tells handlers what is there; gives the number told.
  std::size_t deliver();

 private:
  enum class Kind : std::uint8_t { free, receive, poll, poll_always };
  struct Operation {
    Handler* handler = nullptr;
    std::uint32_t generation = 0;
    int fd = -1;
    unsigned events = 0;
    Kind kind = Kind::free;
    bool armed = false;  // The kernel has it, or its submission is queued.
    bool cancelling = false;
  };
  // An operation's place in the table, linked into the queues by index, so that only add() allocates.
  static constexpr std::uint32_t nowhere = UINT32_MAX;
  struct Slot {
    Operation operation;
    std::uint32_t next_free = nowhere;
    std::uint32_t next_to_arm = nowhere;
    std::uint32_t next_to_cancel = nowhere;
    bool to_arm = false;  // In that queue, possibly for an operation that has been released since.
    bool to_cancel = false;
  };
  struct Queue {
    std::uint32_t first = nowhere;
    std::uint32_t last = nowhere;
  };

  struct Ring;  // The kernel's side. Bound to the thread that first enters it.

  explicit IoUring(std::unique_ptr<Ring> ring) noexcept;
  static Token token_of(std::size_t index, std::uint32_t generation) noexcept {
    return (Token{generation} << 32) | (index + 1);
  }
  Token add(Operation operation);
  Slot* find(Token token) noexcept;
  void release(Slot& slot) noexcept;
  void queue_arm(std::uint32_t index) noexcept;
  void queue_cancel(std::uint32_t index) noexcept;
  void arm(std::uint32_t index) noexcept;
  ::io_uring_sqe* next_sqe() noexcept;
  void submit_queued();
  void bind_to_this_thread();
  bool deliver_one(Token token, int result, unsigned flags);
  void recycle(unsigned short buffer) noexcept;

  std::unique_ptr<Ring> ring_;
  std::uint64_t thread_ = 0;  // The number of the thread that ring_ is bound to; 0 while it is to none.
  std::vector<Slot> slots_;
  std::uint32_t free_ = nowhere;
  Queue to_arm_;
  Queue to_cancel_;
};

}  // namespace hawser::exec
