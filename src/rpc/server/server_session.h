#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <vector>

#include "hawser/detail/reply_sink.h"
#include "hawser/server.h"
#include "rpc/server/dispatcher.h"
#include "rpc/session/session.h"

namespace hawser::rpc {

// Counters of one loop. Its thread writes them, and any thread reads them.
struct LoopCounters {
  class Counter {
   public:
    void add(std::int64_t difference) noexcept {
      value_.store(value_.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(difference),
                   std::memory_order_relaxed);
    }
    std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
  };
  Counter accepted;
  Counter open;
  Counter refused;
  Counter handshakes_failed;
  Counter calls;
  Counter calls_refused;
  Counter protocol_errors;
  Counter transports_declined;
  Counter memory_refusals;
  Counter slow_peers;
};

// State that the sessions of one loop share.
struct ServerLoopShared {
  const Dispatcher& dispatcher;
  const ServerOptions& options;
  detail::ReceiveBudget budget;               // The budget of this loop.
  std::atomic<std::size_t>& calls_in_flight;  // Calls of the whole server that are not answered in place.
  LoopCounters counters = {};
  std::stop_source stopping = {};  // Stopped when the server begins to stop.
  bool serving = false;            // True while a handler has been called and has not returned or suspended.
};

// The server's end of one connection, with its active calls. Outlives the connection until they have ended.
class ServerSession final : public Session, public detail::ReplySink {
 public:
  class Owner {
   public:
    // The connection has ended and no call is active. The owner destroys the session by posting `end`, and not from
    // within this call.
    virtual void on_session_idle(std::unique_ptr<detail::Posted> end) noexcept = 0;

   protected:
    ~Owner() = default;
  };

  ServerSession(Loop& loop, std::unique_ptr<transport::Connection> connection, const SessionSettings& settings,
                ServerLoopShared& shared, Owner& owner);
  ~ServerSession();

  // `end` destroys the session. It is made in advance, since a session must be able to end when memory is exhausted.
  void start(std::unique_ptr<detail::Posted> end) {
    end_ = std::move(end);
    start_session();
  }
  // Accepts no new calls, and closes when the active calls have ended and requests on their way have been refused.
  void go_away();
  // While the session goes away: returns the number of successive calls of this function, including this one, in which
  // the session had nothing to do but to wait for its client's GOAWAY.
  unsigned silent_checks() noexcept;
  // Requests every active call to stop.
  void cancel_calls(const Error& why);
  // Destroys every active call where it is suspended, except calls on which another thread works.
  void destroy_calls();
  std::size_t active_calls() const noexcept { return active_; }
  // Returns true if that coroutine is the handler of an active call.
  bool handles(const void* frame) const noexcept;
  // Ends the connection if memory is held for a message and less than `bytes` of it came since the previous call.
  void end_if_slow(std::uint64_t bytes);
  // Ends the connection at once.
  void abort(const Error& why) { end_session(why); }

  // detail::ReplySink
  Loop& loop() noexcept override { return session_loop(); }
  std::string peer() const override { return peer_; }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  void refuse_unkept(std::uint32_t call) override;
  void fail_connection() noexcept override;
  void enter(detail::ActiveCall& call) override;
  void leave(detail::ActiveCall& call) noexcept override;
  void copy_and_release(SendCompletion& owner) override { connection().copy_and_release(owner); }
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t call) override;
  transport::RemoteMemory* remote_memory() noexcept override {
    return closed() ? nullptr : connection().remote_memory();
  }
  std::stop_token stopping() const noexcept override { return shared_.stopping.get_token(); }

 private:
  void on_frame(const wire::Frame& frame, const transport::Message& message) override;
  transport::ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override;
  void on_end(const Error& reason, std::uint64_t sent) override;
  void on_unkept_item(std::uint32_t call, const Error& why) override;

  void on_request(const wire::RequestFrame& header, const wire::Frame& frame, const transport::Message& message);
  template <class StreamFrame>
  void on_stream(const StreamFrame& part, const wire::Frame& frame, const transport::Message& message);
  void refuse(std::uint32_t call, ErrorCode code, std::string text);
  detail::ActiveCall* find(wire::CallId call) const noexcept;
  void answered(wire::CallId call) noexcept;
  void after_reply();
  void check_idle();

  ServerLoopShared& shared_;
  Owner& owner_;
  const std::string peer_;
  std::vector<detail::ActiveCall*> by_slot_;  // Calls that are not answered yet, by the slot of the call id.
  std::size_t unanswered_ = 0;
  detail::ActiveCall* first_ = nullptr;
  std::size_t active_ = 0;
  const bool connection_charges_;  // If false, this object charges payloads when it selects their receive buffer.
  bool going_away_ = false;
  bool peer_understood_ = false;         // The client has answered our GOAWAY: no request follows.
  std::unique_ptr<detail::Posted> end_;  // Non-null until the owner has been notified.
  unsigned silent_checks_ = 0;
  std::uint64_t sent_at_check_ = 0;
};

}  // namespace hawser::rpc
