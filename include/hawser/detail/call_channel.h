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
class OneSidedMemory;
}

// The interface of a client's session for the call templates. Not for users.
namespace hawser::detail {

class CallDeadlines;
class CallOperation;
struct ClientAccess;  // For clients of other protocols: src/rpc/client/client_access.h.
class BlockingSite;
class MemoryFrames;
class RegionTable;

// One connection of a client. Loop's thread only. Before it ends, it completes its operations.
class CallChannel {
 public:
  virtual Loop& loop() noexcept = 0;
  // Sends the operation's request. On failure the operation is done() with an error when this returns.
  virtual void start(CallOperation& operation) = 0;
  // Cancels a call whose answer is not needed: notifies the server and removes the operation from the call table.
  virtual void abandon(CallOperation& operation) noexcept = 0;
  // Copies the memory that is still on loan from `owner`, which is not notified any more.
  virtual void copy_and_release(SendCompletion& owner) = 0;
  // For stop tokens: a stop may be requested on any thread and after the end of the connection.
  virtual std::weak_ptr<CallChannel> weak() noexcept = 0;
  // Ends the operation with this call id with `error`, if it is still in flight.
  virtual void cancel(std::uint32_t call, const Error& error) = 0;
  // One-sided access to the server's memory. Null if the transport has none.
  virtual transport::OneSidedMemory* remote_memory() noexcept { return nullptr; }
  // Access to the server's memory by frames. Null if the connection has none. May throw std::bad_alloc.
  virtual MemoryFrames* memory_frames() { return nullptr; }

 protected:
  ~CallChannel() = default;
};

// Connection of a Client, or the reason why it has none. Its address does not change while the client exists.
struct ClientLink {
  CallChannel* channel = nullptr;  // Null without a connection.
  Error reason;                    // Why there is no connection.
};

// One call in flight. Its address does not change until the call has ended. Destroying it cancels the call.
class CallOperation : public SendCompletion {
 public:
  struct Request {
    std::uint32_t method = 0;
    std::uint32_t signature = 0;
    std::string_view name;
    codec::EncodedSize size;
    const CallOptions* options = nullptr;  // Null: the defaults.
    bool streams = false;
    bool streams_in = false;      // The caller sends a stream.
    bool streams_out = false;     // The handler sends a stream.
    bool arguments_last = false;  // The arguments exist until the call has ended, so that they can be encoded again.
  };

  CallOperation(const CallOperation&) = delete;
  CallOperation& operator=(const CallOperation&) = delete;

  const Request& request() const noexcept { return request_; }
  // Sets request().size to the current size of the arguments. Called before each encoding, because arguments that are
  // lvalues may have changed.
  virtual void measure() noexcept = 0;
  // Encodes the arguments. measure() has been called before. `pieces` has room for request().size.pieces elements.
  virtual void encode(std::byte* body, ConstBuffer* pieces) = 0;
  // Decodes the reply. The result is the value or the error of decoding.
  virtual void decode(const Received& reply) = 0;
  // Memory that the caller has provided for the payload; empty if there is none.
  virtual MutableBytes memory() const noexcept { return {}; }
  // The session fills it before the call ends. Null: nobody reads it.
  virtual CallOutcome* outcome() noexcept { return nullptr; }

  // ---- For the session ----
  // From now on `channel` has the operation in its call table under `id`. `deadline` is Time::max() if there is none.
  // `deadlines` is the list of the session if the operation has the common timeout of the session, else null.
  void begin(CallChannel& channel, std::uint32_t id, Time deadline, CallDeadlines* deadlines = nullptr);
  Time deadline() const noexcept { return deadline_at_; }
  std::uint32_t id() const noexcept { return id_; }
  void loan() noexcept { loaned_ = true; }
  void on_send_complete() noexcept override;
  // Ends the call. The session has removed the operation from its call table. The loop resumes the awaiter.
  void complete(Loop& loop);
  void complete(Loop& loop, Error error);
  // The request was sent and will be sent again. From now on no error may state that the call was not executed.
  void set_maybe_executed() noexcept { maybe_executed_ = true; }
  StreamCore* stream() const noexcept { return stream_.get(); }
  void set_stream(std::shared_ptr<StreamCore> stream) noexcept { stream_ = std::move(stream); }
  // The receive buffer of the payload that is arriving, so that it can be revoked.
  const std::byte* receive_buffer = nullptr;
  // Connection::committed() after the request.
  std::uint64_t sent_mark = 0;

 protected:
  explicit CallOperation(ClientLink& link) noexcept : link_(link), deadline_(*this) {}
  ~CallOperation();

  // Cancels the call if it has not ended, and ends its loans. Called before the operation's arguments are destroyed.
  void withdraw() noexcept {
    if (in_flight_ || loaned_ || stop_ != nullptr) [[unlikely]]
      end_early();
  }

  Request request_;

  // Sends the request. Without a connection, done() is true afterwards.
  void start();
  bool done() const noexcept { return done_; }
  std::optional<Error>& error() noexcept { return error_; }
  void reading_threw();  // For a catch block: sets the error of a reply whose decoding threw an exception.

  // wait() suspends until the call has ended, wait_sent() until the request has been sent. False: no need to suspend.
  bool wait(std::coroutine_handle<> waiting) noexcept {
    if (!done_) waiting_ = waiting;
    return !done_;
  }
  bool wait_later(std::coroutine_handle<> waiting) noexcept;  // Like wait(), but checks the thread.
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
  friend class CallDeadlines;
  friend class ThreadCall;
  friend class InnerCall;
  struct StopWatch;

  void end_early() noexcept;
  void stop_deadline() noexcept;
  void on_deadline() noexcept;
  void resume_by(Loop& loop);

  ClientLink& link_;
  CallChannel* channel_ = nullptr;  // Not null while the session knows this operation or uses its memory.
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
  std::shared_ptr<StreamCore> stream_;  // Readers and writers may keep it longer than this object.
  StopWatch* stop_ = nullptr;
  class ThreadCall* thread_call_ = nullptr;            // Waits for the end of the call in place of a coroutine.
  MemberTimer<&CallOperation::on_deadline> deadline_;  // Stopped while the operation is in deadlines_.
  CallDeadlines* deadlines_ = nullptr;                 // Non-null while the operation is in that list.
  CallOperation* earlier_ = nullptr;                   // Its neighbours there.
  CallOperation* later_ = nullptr;
};

}  // namespace hawser::detail
