#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/detail/call_channel.h"
#include "hawser/interceptor.h"
#include "rpc/client/client_interception.h"
#include "rpc/session/interceptor_chain.h"

namespace hawser::detail {
class InnerCall;
}

namespace hawser::rpc {

// One call that interceptors surround. `outer` is the operation of the application: it ends when the interceptors have
// ended. Each next() of the last interceptor makes a request of its own (InnerCall).
class InterceptedCall final : public InterceptorChain<OutgoingCall> {
 public:
  InterceptedCall(ClientInterception& by, detail::CallOperation& outer, std::uint32_t id, Time deadline);
  InterceptedCall(const InterceptedCall&) = delete;
  InterceptedCall& operator=(const InterceptedCall&) = delete;
  // Ends the interceptors and the request where they wait.
  ~InterceptedCall();

  // Runs the interceptors until they wait. They may end: this object is destroyed then.
  void start();
  // The caller does not wait any more. If the interceptors wait for the reply, next() returns `error`, or how the
  // request has ended just before. Afterwards they are destroyed where they wait. Destroys this object.
  void stop(const Error& error);
  // Ends the application's operation with `error`. This object is to be destroyed.
  void fail_outer(Error error);

 private:
  friend class detail::InnerCall;
  // The coroutine that awaits the chain. It is destroyed with this object.
  struct Root {
    struct promise_type;
    std::coroutine_handle<promise_type> handle;
  };

  Root drive();
  // The interceptors have ended. Destroys this object.
  void finish() noexcept;
  // InterceptorChain
  Task<Result<void>> make_call() override;
  Error thrown(std::string_view part, std::string text) override;
  std::optional<Result<void>> repeat(bool running) override;

  // For InnerCall.
  void request_begins(detail::InnerCall& inner) noexcept;
  void request_ends() noexcept;
  void replied(const detail::Received& reply);
  void outer_sent() noexcept;
  void end_outer(Result<void>& outcome);

  ClientInterception& by_;
  const std::shared_ptr<const InterceptorList<OutgoingCall>> interceptors_;
  detail::CallOperation& outer_;
  const std::uint32_t id_;
  OutgoingCall info_;
  detail::InnerCall* inner_ = nullptr;  // Non-null while a request is awaited.
  bool sent_ = false;                   // The application knows that its request was sent.
  bool replied_ = false;                // The last request got a result.
  bool executed_ = false;               // A request may have been executed.
  std::optional<Error> stopped_;        // The caller does not wait any more.
  std::optional<Error> failed_;         // Why the last request failed.
  Result<void> outcome_;
  Root root_;
};

}  // namespace hawser::rpc
