#pragma once

#include <coroutine>
#include <memory>
#include <optional>

#include "exec/signal.h"
#include "hawser/client.h"
#include "rpc/session.h"
#include "wire/call_table.h"

namespace hawser::rpc {

// The client's end of one connection: its calls in flight.
class ClientSession final : public Session,
                            public detail::ClientPort,
                            public std::enable_shared_from_this<ClientSession> {
 public:
  // Told when the connection has ended, after every call has been completed; once, and not again.
  class Owner {
   public:
    virtual void on_session_end(const Error& reason) = 0;

   protected:
    ~Owner() = default;
  };

  ClientSession(Loop& loop, std::unique_ptr<transport::Connection> connection, const SessionSettings& settings,
                Duration call_timeout, Owner& owner);

  void start() { start_session(); }
  // Ends the session as the client's own wish: what was committed still leaves.
  void close();

  // Gives the time of a round trip. Pings at the same time share the first answer.
  Task<Result<Duration>> ping();
  std::size_t calls_in_flight() const noexcept { return calls_.size(); }
  bool going_away() const noexcept { return going_away_; }
  Time last_used() const noexcept { return last_used_; }

  // detail::ClientPort
  Loop& loop() noexcept override { return session_loop(); }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override;
  void detach(PayloadOwner& owner) override { connection().detach(owner); }
  std::weak_ptr<detail::ClientPort> weak() noexcept override { return weak_from_this(); }
  void cancel(std::uint32_t call, const Error& error) override;

 private:
  void on_frame(const wire::Frame& frame, const transport::Message& message) override;
  transport::Placement place(Bytes head, std::size_t payload_bytes) override;
  void on_end(const Error& reason, std::uint64_t sent) override;
  void on_pong() override;

  void send(detail::CallOperation& operation);
  void refuse(detail::CallOperation& operation, ErrorCode code, std::string text);
  void on_response(const wire::Frame& frame, const transport::Message& message);
  void on_error(const wire::Frame& frame);
  detail::CallOperation* close_call(std::uint32_t call);

  Owner& owner_;
  const Duration call_timeout_;
  wire::CallTable<detail::CallOperation> calls_;
  bool going_away_ = false;
  Time last_used_;
  exec::Signal ponged_;
  std::uint64_t pongs_ = 0;
};

}  // namespace hawser::rpc
