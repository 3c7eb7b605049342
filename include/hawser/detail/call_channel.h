#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/codec.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/reply.h"
#include "hawser/stream.h"

namespace hawser::transport {
class RemoteMemory;
}

// What the call templates need of a client's session. Not for users.
namespace hawser::detail {

class CallOperation;

// One connection of a client. Loop's thread only. When it ends, it completes its operations first.
class CallChannel {
 public:
  virtual Loop& loop() noexcept = 0;
  // Sends the operation's request. On failure the operation is done() with an error when this returns.
  virtual void start(CallOperation& operation) = 0;
  // The answer is not wanted any more: tells the server and forgets the operation.
  virtual void abandon(CallOperation& operation) noexcept = 0;
  // What the operation lent is copied.
  virtual void copy_and_release(SendCompletion& owner) = 0;
  // Calls that a stop token can reach from any thread go by this.
  virtual std::weak_ptr<CallChannel> weak() noexcept = 0;
  // Ends the operation of that id, if it still is in flight.
  virtual void cancel(std::uint32_t call, const Error& error) = 0;
  // Null where there is none.
  virtual transport::RemoteMemory* remote_memory() noexcept { return nullptr; }

 protected:
  ~CallChannel() = default;
};

// What a Client's calls start from; stays at one address as long as the client.
struct ClientLink {
  CallChannel* channel = nullptr;  // Null while there is no connection.
  Error reason;                    // Why not.
};

// One call in flight, at a stable address until it has ended. Destroying it abandons the call.
class CallOperation : public SendCompletion {
 public:
  struct Request {
    std::uint32_t method = 0;
    std::uint32_t signature = 0;
    std::string_view name;
    codec::EncodedSize size;
    const CallOptions* options = nullptr;  // Null for the defaults.
    bool streams = false;
    bool arguments_last = false;  // Until the call has ended, so that it can be encoded again.
  };

  CallOperation(const CallOperation&) = delete;
  CallOperation& operator=(const CallOperation&) = delete;

  const Request& request() const noexcept { return request_; }
  // Sets request().size to what the arguments take now. Before each time that they are encoded: those given as lvalues
  // may have changed.
  virtual void measure() noexcept = 0;
  // Writes the arguments as measured; `pieces` has room for request().size.pieces.
  virtual void encode(std::byte* body, ConstBuffer* pieces) = 0;
  // Takes the reply, or keeps what is wrong with it as the result.
  virtual void decode(const Received& reply) = 0;
  // Where the caller wants a payload; empty if it does not say.
  virtual MutableBytes memory() const noexcept { return {}; }

  // ---- For the session ----
  // `port` knows the operation under `id` from now on; the deadline is Time::max() if there is none.
  void begin(CallChannel& channel, std::uint32_t id, Time deadline);
  Time deadline() const noexcept { return deadline_at_; }
  std::uint32_t id() const noexcept { return id_; }
  void loan() noexcept { loaned_ = true; }
  void on_send_complete() noexcept override;
  // The session has forgotten the operation; its awaiter is resumed by the loop.
  void complete(Loop& loop);
  void complete(Loop& loop, Error error);
  // A request that had left is to be sent again: from now on no error may say that it was not executed.
  void set_maybe_executed() noexcept { maybe_executed_ = true; }
  StreamCore* stream() const noexcept { return stream_.get(); }
  void set_stream(std::shared_ptr<StreamCore> stream) noexcept { stream_ = std::move(stream); }
  // Where the payload now coming is being received, so that it can be taken back.
  const std::byte* receive_buffer = nullptr;
  // The transport's position behind the request.
  std::uint64_t sent_mark = 0;

 protected:
  explicit CallOperation(ClientLink& link) noexcept : link_(link), deadline_(*this) {}
  ~CallOperation();

  // Abandons the call if it has not ended, and takes back what is lent. Before arguments that it owns are destroyed.
  void withdraw() noexcept;

  Request request_;

  // Sends the request, unless there is no connection; then done() is true.
  void start();
  bool done() const noexcept { return done_; }
  std::optional<Error>& error() noexcept { return error_; }

  // Suspends until the call has ended, or until the request has been sent.
  bool wait(std::coroutine_handle<> waiting) noexcept {
    if (!done_) waiting_ = waiting;
    return !done_;
  }
  bool wait_sent(std::coroutine_handle<> waiting) noexcept {
    if (!loaned_ || done_) return false;
    waiting_ = waiting;
    waiting_for_sent_ = true;
    return true;
  }
  void resumed() noexcept {
    waiting_ = nullptr;
    queued_on_ = nullptr;
    waiting_for_sent_ = false;
  }

 private:
  struct DeadlineTimer : Timer {
    explicit DeadlineTimer(CallOperation& owner) noexcept : Timer(&DeadlineTimer::fire), operation(owner) {}
    static void fire(Timer& timer) noexcept;
    CallOperation& operation;
  };
  struct StopWatch;

  void resume_by(Loop& loop);

  ClientLink& link_;
  CallChannel* channel_ = nullptr;  // Non-null exactly while the session knows this operation or uses its memory.
  Time deadline_at_ = Time::max();
  std::uint32_t id_ = 0;
  bool in_flight_ = false;
  bool loaned_ = false;
  bool done_ = false;
  bool waiting_for_sent_ = false;
  bool maybe_executed_ = false;
  std::coroutine_handle<> waiting_;
  Loop* queued_on_ = nullptr;  // The loop that will resume waiting_.
  std::optional<Error> error_;
  std::shared_ptr<StreamCore> stream_;  // Outlives this in readers and writers.
  StopWatch* stop_ = nullptr;
  DeadlineTimer deadline_;
};

}  // namespace hawser::detail
