#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/bytes.h"
#include "hawser/codec/decoder.h"
#include "hawser/codec/encoder.h"
#include "hawser/detail/receive_account.h"
#include "hawser/error.h"
#include "hawser/handler_options.h"
#include "hawser/loop.h"
#include "hawser/metadata.h"
#include "hawser/task.h"

namespace hawser {
struct Identity;
}
namespace hawser::transport {
class OneSidedMemory;
}

// The interface of a server's session for the handler templates. Not for users.
namespace hawser::detail {

class ActiveCall;
class MemoryFrames;
class StreamCore;
struct ServedMethod;

// Data that a reply carries beside its result.
struct ReplyExtras {
  Bytes attachment;
  const Metadata* metadata = nullptr;
};

// Owns what a handler sends beside its result, and what its result refers to.
struct ReplyParts {
  Buffer attachment = {};
  Metadata metadata = {};
  std::vector<Buffer> kept = {};
  ReplyExtras extras() const noexcept { return {attachment.bytes(), &metadata}; }
  void add_metadata(std::string key, std::string value);
  void keep(Buffer buffer);
};

// Sends the answers of one connection of a server. Outlives its active calls. Loop's thread only.
class ReplySink {
 public:
  virtual Loop& loop() noexcept = 0;
  virtual std::string peer() const = 0;
  // Who the caller has proved to be. Lives as long as the call.
  virtual const Identity& identity() const noexcept = 0;
  // The name of the protocol, a literal: "hawser", "http".
  virtual std::string_view protocol() const noexcept = 0;
  // The sink of the connection, if this one stands between it and a handler.
  virtual ReplySink& origin() noexcept { return *this; }

  // Returns memory for the body of the reply to `call`. Null if the connection has ended, or if the reply exceeds a
  // limit; the caller has been sent an error then. In both cases the call is finished.
  virtual std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size, const ReplyExtras& extras) = 0;
  // Sends the reply that begin_reply() began. The pieces are on loan until `owner` is notified, or copied if it is
  // null. Does not throw: if there is not enough memory to send the reply, the connection ends.
  virtual void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) = 0;
  virtual void reply_error(std::uint32_t call, const Error& error) = 0;
  // Logs an exception that left `part`, such as "the handler", of a call of `method`. Returns the error for the caller.
  // `text` describes the exception. The line has the trace of `metadata`, which is that of the call.
  virtual Error exception_error(MetadataView metadata, std::string_view method, std::string_view part,
                                std::string text) = 0;
  // Refuses `call`, which has not run, because there is no memory to keep its request.
  virtual void refuse_unkept(std::uint32_t call) = 0;
  // Ends the connection, because there is no memory to answer a call.
  virtual void fail_connection() noexcept = 0;

  // Adds and removes a call that is not answered at once, so that it can be cancelled, counted and ended.
  virtual void enter(ActiveCall& call) = 0;
  virtual void leave(ActiveCall& call) noexcept = 0;
  // Copies the memory that is still on loan from `owner`, which is not notified any more.
  virtual void copy_and_release(SendCompletion& owner) = 0;
  virtual std::shared_ptr<StreamCore> open_stream(std::uint32_t call) = 0;
  // One-sided access to the caller's memory. Null if the transport has none.
  virtual transport::OneSidedMemory* remote_memory() noexcept { return nullptr; }
  // Access to the caller's memory by frames. Null if the connection has none. May throw std::bad_alloc.
  virtual MemoryFrames* memory_frames() { return nullptr; }
  // Stopped when the server begins to stop. Any thread.
  virtual std::stop_token stopping() const noexcept { return {}; }

 protected:
  ~ReplySink() = default;
};

// A request that is being dispatched. The views are valid until serve() returns; an ActiveCall extends that.
struct IncomingRequest {
  ReplySink& sink;
  std::uint32_t call = 0;
  std::optional<Time> deadline = {};
  Bytes body = {};
  Bytes payload = {};  // Without the attachment.
  Bytes attachment = {};
  MetadataView metadata = {};      // Directly before the body, or in memory of its own, which is copied to last.
  Block* head_block = nullptr;     // Holds the body. Null: the memory is reused and must be copied to last.
  Block* payload_block = nullptr;  // Likewise for payload and attachment.
  bool placed = false;             // `payload_block` is memory of the application (HandlerOptions::receive_into).
  bool coded = false;              // `body` is compressed or JSON: it becomes the arguments before a handler runs.
  // Charged for memory that is kept. Lives as long as `sink`. Null: nothing is charged.
  ReceiveAccount* account = nullptr;
  const codec::DecodeLimits* decode_limits = &codec::default_decode_limits;  // Lives as long as `sink`.

  // True if views of the request's memory may be kept without a copy. If it is false, a reply that is sent from this
  // memory must be copied. Parts shorter than `loaned_bytes_min` are copied anyway when they are sent.
  bool stays(std::size_t loaned_bytes_min) const noexcept {
    return (head_block != nullptr || body.size() < loaned_bytes_min) &&
           (payload_block != nullptr || payload.size() + attachment.size() < loaned_bytes_min);
  }
};

// Answers the calls of one method.
class Handler {
 public:
  explicit Handler(HandlerOptions given = {}) noexcept : options(std::move(given)) {}
  virtual ~Handler() = default;
  virtual void serve(const IncomingRequest& request) = 0;

  const HandlerOptions options;
};

// A coroutine that starts at once and destroys itself at its end. Its ActiveCall can destroy it earlier.
struct Serving {
  struct promise_type : PooledFrame {
    Serving get_return_object() const noexcept { return {}; }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_never final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    [[noreturn]] void unhandled_exception() const noexcept { std::terminate(); }
  };
};

// A call that a coroutine answers. It keeps the request's memory, and can be cancelled and time out. It lives in the
// frame of that coroutine, which must await self() first.
class ActiveCall final : public SendCompletion {
 public:
  // How a request of at most small_bytes_max bytes is kept. Its receive block is much larger than the request.
  enum class Keep : std::uint8_t {
    copy_small,  // The request is copied, so that a long call does not hold the block.
    in_place,    // The block is kept, because views of it exist already.
  };
  static constexpr std::size_t small_bytes_max = 4096;

  ActiveCall(const IncomingRequest& request, Keep keep);
  ActiveCall(const ActiveCall&) = delete;
  ActiveCall& operator=(const ActiveCall&) = delete;
  ~ActiveCall();

  // False if there is no memory to keep the request. The caller has been sent an error then, and the call is finished.
  // Keep::in_place is always admitted.
  bool admitted();
  // The request. Its views are valid as long as this object.
  const IncomingRequest& request() const noexcept { return request_; }
  ReplySink& sink() const noexcept { return request_.sink; }
  std::uint32_t id() const noexcept { return request_.call; }
  std::stop_token token();
  StreamCore& stream();
  StreamCore* stream_if_open() const noexcept { return stream_.get(); }
  // The stream of a call that interceptors surround is that of the handler, too.
  std::shared_ptr<StreamCore> share_stream() {
    stream();
    return stream_;
  }
  // The request for a handler that runs within this call: `sink` answers it, and the memory is not charged again.
  IncomingRequest request_for(ReplySink& sink, MetadataView metadata) const noexcept;
  // `body` is what the body of the request has become: the arguments, unless it is still `coded`. Releases the former
  // body and its charge, and charges the new one until the call ends. False if the account refuses it.
  bool replace_body(Buffer body, bool coded);

  // True once the caller does not wait any more.
  bool stopped() const noexcept { return stopped_; }
  // The caller does not wait any more, for the reason `why`. Stops the handler's token and closes its streams.
  void request_stop(const Error& why) noexcept;
  // Like request_stop() above. If there is no memory for the text, the error has the code only.
  void request_stop(ErrorCode code, Initiator initiator, std::string_view text) noexcept;

  // Destroys the coroutine where it is suspended, and this object with it.
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

  // Makes this the owner of loaned pieces. released() then waits until their loan has ended.
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
      // A coroutine that is destroyed here ends its loans before it destroys the call.
      ~Awaiter() { call.copy_and_release(); }
    };
    return Awaiter{*this};
  }
  void on_send_complete() noexcept override;
  // Copies the memory that is still on loan.
  void copy_and_release() noexcept {
    if (std::exchange(loaned_, false)) sink().copy_and_release(*this);
  }

  // While a Pin exists, the coroutine must not be destroyed from outside, because another thread uses its frame.
  class Pin {
   public:
    explicit Pin(ActiveCall& call) noexcept : call_(call) { call_.pinned_ = true; }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() { call_.pinned_ = false; }

   private:
    ActiveCall& call_;
  };
  bool pinned() const noexcept { return pinned_ || (inner != nullptr && inner->pinned()); }

  // The call of the handler that runs within this one, if interceptors surround it. A stop is passed on to it, and the
  // coroutine of this call destroys it.
  ActiveCall* inner = nullptr;
  // The coroutine is to be destroyed when it is not pinned any more.
  bool end_wanted = false;
  // Interceptors surround the call, or know its outcome already.
  bool observed = false;

  // Frame of the handler, if it is a coroutine. Null before it begins, and for other handlers.
  const void* handler_frame = nullptr;

  // For the counters of the sink, which sets them.
  const ServedMethod* method = nullptr;   // Null: a call of no method, such as a route.
  Time begun{};                           // The tick in which the call began.
  std::optional<ErrorCode> outcome = {};  // Empty until the call has been answered.
  // Returns in a word why the call has not ended.
  std::string_view waits_for() const noexcept {
    return pinned_ ? "a thread" : loaned_ || outcome ? "sending" : stopped_ ? "handler, stopped" : "handler";
  }

  // Links of the sink's list of active calls.
  ActiveCall* next = nullptr;
  ActiveCall** previous = nullptr;

 private:
  void on_deadline() noexcept;
  void close_stream(const Error& why) noexcept;
  bool charge(const Buffer& kept, bool copied, bool always, ReceiveCharge& block_charge);

  IncomingRequest request_;
  ReceiveCharge head_charge_;
  ReceiveCharge payload_charge_;
  ReceiveCharge copies_;
  Buffer metadata_;  // Only if the metadata did not lie directly before the body.
  Buffer head_;
  Buffer payload_;
  bool admitted_ = true;
  bool loaned_ = false;
  bool queued_ = false;  // The loop will resume waiting_.
  bool stopped_ = false;
  bool pinned_ = false;
  std::coroutine_handle<> coroutine_;
  std::coroutine_handle<> waiting_;  // Suspended in released().
  std::optional<std::stop_source> stop_;
  std::shared_ptr<StreamCore> stream_;  // Readers and writers may keep it longer than this object.
  MemberTimer<&ActiveCall::on_deadline> deadline_;
};

}  // namespace hawser::detail
