#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "hawser/detail/call_channel.h"
#include "hawser/interceptor.h"
#include "rpc/client/connection_link.h"
#include "rpc/session/interceptor_chain.h"

namespace hawser::rpc {

class InterceptedCall;

// The interceptors of one client, and the calls that they surround. It stands between the operations of the application
// and the client's connection, and outlives every connection. Loop's thread only.
class ClientInterception final : public detail::CallChannel, public std::enable_shared_from_this<ClientInterception> {
 public:
  ClientInterception(Duration call_timeout, std::size_t calls_max) noexcept;
  ClientInterception(const ClientInterception&) = delete;
  ClientInterception& operator=(const ClientInterception&) = delete;
  ~ClientInterception();

  // Calls of `link` go through the interceptors from now on. The link is not used after end().
  void attach(ConnectionLink& link) noexcept;
  void add(std::shared_ptr<detail::Interceptor<OutgoingCall>> interceptor);
  // Ends every call with an error.
  void end(std::string_view why);
  // `call` is called when a call has ended, until end().
  void at_end(std::function<void()> call) { at_end_ = std::move(call); }
  // Number of calls that start() accepts now.
  std::size_t free_places() const noexcept { return calls_max_ - calls_.size(); }
  // Number of calls whose interceptors wait for something else than the reply.
  std::size_t calls_waiting() const noexcept { return calls_.size() - calls_at_connection_; }

  // detail::CallChannel
  Loop& loop() noexcept override { return *loop_; }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override;
  void copy_and_release(SendCompletion&) override {}  // abandon() has done it.
  std::weak_ptr<CallChannel> weak() noexcept override { return std::shared_ptr<CallChannel>(shared_from_this(), this); }
  void cancel(std::uint32_t call, const Error& error) override;
  transport::OneSidedMemory* remote_memory() noexcept override {
    return link_->connection == nullptr ? nullptr : link_->connection->remote_memory();
  }
  detail::MemoryFrames* memory_frames() override {
    return link_->connection == nullptr ? nullptr : link_->connection->memory_frames();
  }

 private:
  friend class InterceptedCall;
  void remove(std::uint32_t id) noexcept;

  // A snapshot for calls in flight: add() makes another list.
  std::shared_ptr<const InterceptorList<OutgoingCall>> interceptors_ =
      std::make_shared<InterceptorList<OutgoingCall>>();
  const Duration call_timeout_;
  const std::size_t calls_max_;
  ConnectionLink* link_ = nullptr;
  Loop* loop_ = nullptr;  // Set by the first call.
  std::uint32_t next_id_ = 0;
  std::size_t calls_at_connection_ = 0;
  std::unordered_map<std::uint32_t, std::unique_ptr<InterceptedCall>> calls_;
  std::function<void()> at_end_;
};

}  // namespace hawser::rpc
