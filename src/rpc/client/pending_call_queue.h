#pragma once

#include <map>
#include <memory>

#include "hawser/detail/call_channel.h"
#include "rpc/client/client_session.h"

namespace hawser::rpc {

// Keeps calls while their client moves to another transport. Loop's thread only.
class PendingCallQueue final : public detail::CallChannel, public std::enable_shared_from_this<PendingCallQueue> {
 public:
  PendingCallQueue(Loop& loop, std::size_t calls_max, Duration call_timeout)
      : loop_(loop), calls_max_(calls_max), call_timeout_(call_timeout) {}

  // Takes over a call of a connection that has ended. `unsent`: its request was certainly not sent completely.
  void keep(detail::CallOperation& operation, bool unsent);
  // Sends the waiting calls, in the order in which they came.
  void send_all(ClientSession& session);
  // Completes the waiting calls with `reason`.
  void fail_all(const Error& reason);
  std::size_t size() const noexcept { return waiting_.size(); }

  // detail::CallChannel
  Loop& loop() noexcept override { return loop_; }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override { waiting_.erase(operation.id()); }
  void copy_and_release(SendCompletion&) override {}
  std::weak_ptr<detail::CallChannel> weak() noexcept override { return weak_from_this(); }
  void cancel(std::uint32_t call, const Error& error) override;

 private:
  struct QueuedCall {
    detail::CallOperation* operation;
    bool unsent;
  };

  void add(detail::CallOperation& operation, bool unsent, Time deadline);

  Loop& loop_;
  const std::size_t calls_max_;
  const Duration call_timeout_;
  std::uint32_t next_id_ = 1;
  std::map<std::uint32_t, QueuedCall> waiting_;  // By id, which is the order in which the calls came.
};

}  // namespace hawser::rpc
