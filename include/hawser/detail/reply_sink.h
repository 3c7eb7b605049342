#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "hawser/bytes.h"
#include "hawser/codec/decoder.h"
#include "hawser/codec/encoder.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/loop.h"
#include "hawser/metadata.h"
#include "hawser/task.h"

namespace hawser::transport {
class RemoteMemory;
}

// What the handler templates need of a server's session. Not for users.
namespace hawser::detail {

class ActiveCall;
class StreamCore;

// What goes beside a result.
struct ReplyExtras {
  Bytes attachment;
  const Metadata* metadata = nullptr;
};

// Where answers go: one connection of a server. Outlives its active calls. Loop's thread only.
class ReplySink {
 public:
  virtual Loop& loop() noexcept = 0;
  virtual std::string peer() const = 0;

  // Room for the body of `call`'s reply. Null if the connection has ended, or if the reply passes a limit, which the
  // caller has then been told; either way nothing more is to be done.
  virtual std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size, const ReplyExtras& extras) = 0;
  // Sends the reply begun; the pieces are borrowed until `owner` is told, and copied if there is none. Does not throw:
  // without memory to send it the connection ends.
  virtual void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) = 0;
  virtual void reply_error(std::uint32_t call, const Error& error) = 0;
  // Refuses `call`, which has not run, since its request can't be kept.
  virtual void refuse_unkept(std::uint32_t call) = 0;
  // Ends the connection, since a call can't be answered for want of memory.
  virtual void fail_connection() noexcept = 0;

  // Calls that are not answered at once: to cancel, count and end them.
  virtual void enter(ActiveCall& call) = 0;
  virtual void leave(ActiveCall& call) noexcept = 0;
  // `owner` must not be told any more: what it lent is copied.
  virtual void copy_and_release(SendCompletion& owner) = 0;
  virtual std::shared_ptr<StreamCore> open_stream(std::uint32_t call) = 0;
  // One-sided access to the caller's memory; null where there is none.
  virtual transport::RemoteMemory* remote_memory() noexcept { return nullptr; }
  // Is stopped when the server begins to stop. Any thread.
  virtual std::stop_token stopping() const noexcept { return {}; }

 protected:
  ~ReplySink() = default;
};

// A request as it is dispatched. The views last until serve() returns; an ActiveCall makes them last longer.
struct IncomingRequest {
  ReplySink& sink;
  std::uint32_t call = 0;
  std::optional<Time> deadline = {};
  Bytes body = {};
  Bytes payload = {};  // Without the attachment.
  Bytes attachment = {};
  MetadataView metadata = {};
  Block* head_block = nullptr;        // Holds body and metadata; null if the memory is reused: what lasts is copied.
  Block* payload_block = nullptr;     // Likewise of payload and attachment.
  ReceiveAccount* account = nullptr;  // Pays for what lasts; as long as `sink`. Null: nothing is charged.
  const codec::DecodeLimits* decode_limits = &codec::default_decode_limits;  // Lasts as long as `sink`.

  // Whether views of its memory can be kept as they are; if not, those that are sent from where they lie must be
  // copied. What is shorter than `loaned_bytes_min` is copied anyhow when it is sent.
  bool stays(std::size_t loaned_bytes_min) const noexcept {
    return (head_block != nullptr || body.size() < loaned_bytes_min) &&
           (payload_block != nullptr || payload.size() + attachment.size() < loaned_bytes_min);
  }
};

// Answers one method's calls.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void serve(const IncomingRequest& request) = 0;
};

// A coroutine that starts at once and frees itself at its end; its ActiveCall can end it before.
struct Serving {
  struct promise_type : PooledFrame {
    Serving get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
};

// A call that a coroutine answers: keeps the request's memory, can be cancelled and timed out. Lives in the frame of
// that coroutine, which must await self() before anything else.
class ActiveCall final : public SendCompletion {
 public:
  // What becomes of a request that is shorter than small_bytes_max: its receive block is much larger.
  enum class Keep : std::uint8_t {
    copy_small,  // It is copied, so that a call that takes long does not hold the block.
    in_place,    // It stays, since views of it exist already.
  };
  static constexpr std::size_t small_bytes_max = 4096;

  ActiveCall(const IncomingRequest& request, Keep keep);
  ActiveCall(const ActiveCall&) = delete;
  ActiveCall& operator=(const ActiveCall&) = delete;
  ~ActiveCall();

  // False if there is no memory to keep the request; its caller has been told then, and nothing more is to be done.
  // Keep::in_place is always admitted.
  bool admitted();
  // The request, with views that last as long as this.
  const IncomingRequest& request() const noexcept { return request_; }
  ReplySink& sink() const noexcept { return request_.sink; }
  std::uint32_t id() const noexcept { return request_.call; }
  std::stop_token token();
  StreamCore& stream();
  StreamCore* stream_if_open() const noexcept { return stream_.get(); }

  // The caller does not wait any more, for this reason. The handler learns it by its token and its streams.
  void request_stop(const Error& why) noexcept;
  // The same; without memory for the text, the code has to do.
  void request_stop(ErrorCode code, Initiator initiator, std::string_view text) noexcept;

  // Ends the coroutine where it is suspended, and with it this object.
  void destroy_coroutine() const { coroutine_.destroy(); }

  auto self() noexcept {
    struct Awaiter {
      ActiveCall& call;
      bool await_ready() const noexcept { return false; }
      bool await_suspend(std::coroutine_handle<> handle) const noexcept {
        call.coroutine_ = handle;
        return false;
      }
      void await_resume() const noexcept {}
    };
    return Awaiter{*this};
  }

  // To be the owner of pieces; then released() completes when they are not used any more.
  SendCompletion& loan() noexcept {
    loaned_ = true;
    return *this;
  }
  auto released() noexcept {
    struct Awaiter {
      ActiveCall& call;
      bool await_ready() const noexcept { return !call.loaned_; }
      void await_suspend(std::coroutine_handle<> handle) const noexcept { call.waiting_ = handle; }
      void await_resume() const noexcept {
        call.waiting_ = nullptr;
        call.queued_ = false;
      }
      // A coroutine that is ended here frees what it lent before it frees the call.
      ~Awaiter() { call.copy_and_release(); }
    };
    return Awaiter{*this};
  }
  void on_send_complete() noexcept override;
  // What is still lent is copied.
  void copy_and_release() noexcept {
    if (std::exchange(loaned_, false)) sink().copy_and_release(*this);
  }

  // While one exists, the coroutine must not be ended from outside: another thread uses its frame.
  class Pin {
   public:
    explicit Pin(ActiveCall& call) noexcept : call_(call) { call_.pinned_ = true; }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() { call_.pinned_ = false; }

   private:
    ActiveCall& call_;
  };
  bool pinned() const noexcept { return pinned_; }

  // Of the coroutine that the handler is; null before it begins, and of other handlers.
  const void* handler_frame = nullptr;

  // The sink's list.
  ActiveCall* next = nullptr;
  ActiveCall** previous = nullptr;

 private:
  struct DeadlineTimer : Timer {
    explicit DeadlineTimer(ActiveCall& owner) noexcept : Timer(&DeadlineTimer::fire), call(owner) {}
    static void fire(Timer& timer) noexcept;
    ActiveCall& call;
  };

  void close_stream(const Error& why) noexcept;
  bool charge(const Buffer& kept, bool copied, bool always, ReceiveCharge& block_charge);

  IncomingRequest request_;
  ReceiveCharge head_charge_;
  ReceiveCharge payload_charge_;
  ReceiveCharge copies_;
  Buffer head_;
  Buffer payload_;
  bool admitted_ = true;
  bool loaned_ = false;
  bool queued_ = false;  // The loop will resume waiting_.
  bool stopped_ = false;
  bool pinned_ = false;
  std::coroutine_handle<> coroutine_;
  std::coroutine_handle<> waiting_;  // In released().
  std::optional<std::stop_source> stop_;
  std::shared_ptr<StreamCore> stream_;  // Outlives this in readers and writers.
  DeadlineTimer deadline_;
};

}  // namespace hawser::detail
