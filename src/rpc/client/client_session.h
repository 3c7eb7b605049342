#pragma once

#include <coroutine>
#include <memory>
#include <optional>
#include <string_view>

#include "exec/condition.h"
#include "hawser/client.h"
#include "rpc/client/call_deadlines.h"
#include "rpc/session/session.h"
#include "wire/call_table.h"

namespace hawser::rpc {

// Returns the time at which a call that begins now ends; Time::max() if it has no deadline.
Time call_deadline(Loop& loop, const detail::CallOperation::Request& request, Duration call_timeout) noexcept;
// Returns the error of a call that was in flight when its connection ended.
Error ended_call(bool unsent, const Error& reason);

// The client's end of one connection: its calls in flight.
class ClientSession final : public Session,
                            public detail::CallChannel,
                            public std::enable_shared_from_this<ClientSession> {
 public:
  class Owner {
   public:
    // The connection has ended with `operation` in flight. Returns true if the owner sends the operation again
    // elsewhere; otherwise the session completes it. `unsent`: the request was certainly not sent completely.
    virtual bool take_over(ClientSession& session, detail::CallOperation& operation, bool unsent,
                           const Error& reason) = 0;
    // The connection has ended, and every call has been completed or taken over. Called exactly once.
    virtual void on_session_end(ClientSession& session, const Error& reason) = 0;
    // A call of a session that was full() has ended, or the session takes no new calls any more.
    virtual void on_place() = 0;

   protected:
    ~Owner() = default;
  };

  ClientSession(Loop& loop, std::unique_ptr<transport::Connection> connection, const SessionSettings& settings,
                Duration call_timeout, Owner& owner);

  void start() { start_session(); }
  // Close the session on the client's request: data that was committed is still sent.
  void close() { close_because("the client was closed"); }
  void close_because(std::string_view why);
  // Closes the session in the same way after the last call has been answered. Accepts no new calls.
  void finish();
  // Sends an operation of another session again, with its original deadline.
  void restart(detail::CallOperation& operation);

  // Returns the time of a round trip. Concurrent pings share the first answer. A ping with a body is answered with a
  // body.
  Task<Result<Duration>> ping(std::size_t body_bytes = 0);
  std::size_t calls_in_flight() const noexcept { return calls_.size(); }
  // True if the next call would be refused, because as many are in flight as this side or the server allows.
  bool full() const noexcept { return calls_.full(); }
  std::size_t free_places() const noexcept { return calls_.calls_max() - calls_.size(); }
  bool going_away() const noexcept { return going_away_; }
  Time last_used() const noexcept { return last_used_; }

  // detail::CallChannel
  Loop& loop() noexcept override { return session_loop(); }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override;
  void copy_and_release(SendCompletion& owner) override { copy_or_end(owner); }
  std::weak_ptr<detail::CallChannel> weak() noexcept override { return weak_from_this(); }
  void cancel(std::uint32_t call, const Error& error) override;
  transport::OneSidedMemory* remote_memory() noexcept override {
    return closed() ? nullptr : connection().remote_memory();
  }
  detail::MemoryFrames* memory_frames() override { return open_memory(); }

 private:
  void on_frame(const wire::Frame& frame, const transport::Message& message) override;
  transport::ReceiveBuffer select_receive_buffer(Bytes head, std::size_t payload_bytes) override;
  void on_end(const Error& reason, std::uint64_t sent) override;
  void on_pong(std::size_t body_bytes) override;
  void on_unkept_item(std::uint32_t call, const Error& why) override { cancel(call, why); }

  bool may_send(detail::CallOperation& operation);
  void refuse_start(detail::CallOperation& operation);
  void send(detail::CallOperation& operation, Time deadline);
  void send_as(wire::CallId id, detail::CallOperation& operation, Time deadline);
  void refuse(detail::CallOperation& operation, ErrorCode code, std::string text);
  void on_response(const wire::ResponseFrame& response, const wire::Frame& frame, const transport::Message& message);
  void on_error(const wire::ErrorFrame& reply, std::string_view text);
  void on_goaway();
  template <class StreamFrame>
  void on_stream(const StreamFrame& part, const wire::Frame& frame, const transport::Message& message);
  detail::CallOperation* close_call(wire::CallId call, wire::FrameKind answer);

  Owner& owner_;
  const Duration call_timeout_;
  detail::CallDeadlines deadlines_;  // Has the calls whose timeout is call_timeout_.
  wire::CallTable<detail::CallOperation> calls_;
  bool going_away_ = false;
  bool finishing_ = false;
  Time last_used_;
  exec::Condition ponged_;
  std::uint64_t pongs_ = 0;
  std::uint64_t long_pongs_ = 0;  // The PONGs that had a body.
};

}  // namespace hawser::rpc
