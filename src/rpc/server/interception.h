#pragma once

#include <coroutine>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/alive.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/detail/served_method.h"
#include "hawser/interceptor.h"
#include "rpc/port/port_host.h"
#include "rpc/port/port_session.h"
#include "rpc/server/body_conversion.h"
#include "rpc/server/held_reply.h"
#include "rpc/session/interceptor_chain.h"

namespace hawser::rpc {

// Stands between the session and the handler of one call that interceptors surround, or whose body is converted on
// another thread.
// The handler's answer is held until the interceptors have ended. `outer` is the call as the session knows it; the
// handler has one of its own if it is a coroutine. Lives in the frame of `outer`'s coroutine.
class Interception final : public detail::ReplySink, public InterceptorChain<IncomingCall> {
 public:
  Interception(detail::ActiveCall& outer, const ServerInterceptors& interceptors, detail::Handler& handler,
               const detail::ServedMethod& method, detail::CallDraw draw, BodyForm form);
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;
  ~Interception();

  // Answers the call with what the interceptors returned. Call it once, after run().
  void answer(Result<void>& outcome);
  // Waits until the handler's coroutine has ended. Call it after answer().
  auto handler_end() noexcept {
    struct Awaiter {
      Interception& on;
      bool await_ready() const noexcept { return on.outer_.inner == nullptr; }
      void await_suspend(std::coroutine_handle<> handle) const noexcept { on.awaits_end_ = handle; }
      void await_resume() const noexcept { on.awaits_end_ = nullptr; }
    };
    return Awaiter{*this};
  }

 private:
  // Awaited by make_call(): runs the handler until it has answered.
  class Handled;

  // InterceptorChain
  Task<Result<void>> make_call() override;
  Error thrown(std::string_view part, std::string text) override;
  void entered(const void* frame) noexcept override { outer_.handler_frame = frame; }

  // detail::ReplySink
  Loop& loop() noexcept override { return outer_.sink().loop(); }
  std::string peer() const override { return outer_.sink().peer(); }
  const Identity& identity() const noexcept override { return call_.identity(); }
  std::string_view protocol() const noexcept override { return outer_.sink().protocol(); }
  detail::ReplySink& origin() noexcept override { return outer_.sink().origin(); }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  Error exception_error(MetadataView metadata, std::string_view method, std::string_view part,
                        std::string text) override {
    return outer_.sink().exception_error(metadata, method, part, std::move(text));
  }
  void refuse_unkept(std::uint32_t call) override;
  void fail_connection() noexcept override { outer_.sink().fail_connection(); }
  void enter(detail::ActiveCall& call) override;
  void leave(detail::ActiveCall& call) noexcept override;
  void copy_and_release(SendCompletion& owner) override;
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t) override { return outer_.share_stream(); }
  transport::OneSidedMemory* remote_memory() noexcept override { return outer_.sink().remote_memory(); }
  std::stop_token stopping() const noexcept override { return outer_.sink().stopping(); }

  PortSession& session() noexcept { return static_cast<PortSession&>(outer_.sink().origin()); }
  void start_handler();
  void answered() noexcept;
  void end_outer();
  // The interceptors do not wait for the handler any more.
  void abandon() noexcept;
  void forward();

  detail::ActiveCall& outer_;
  detail::Handler& handler_;
  const detail::ServedMethod& method_;
  BodyConversion conversion_;
  IncomingCall call_;
  bool started_ = false;        // The handler was called.
  bool starting_ = false;       // start_handler() is running.
  bool answered_ = false;       // The handler has answered.
  bool ended_ = false;          // answer() was called.
  Handled* handled_ = nullptr;  // Non-null while the handler is awaited.
  std::coroutine_handle<> awaits_end_;
  bool end_queued_ = false;  // The loop will resume awaits_end_.
  HeldReply reply_;
  const Alive<Interception> alive_{*this};
};

// Runs interceptors around the calls of a method, and then its handler.
class InterceptedHandler final : public detail::Handler {
 public:
  // `interceptors` and `method` outlive this object; `handler` is the method's own.
  InterceptedHandler(std::unique_ptr<detail::Handler> handler, const ServerInterceptors& interceptors,
                     const detail::ServedMethod& method)
      : Handler(handler->options), handler_(std::move(handler)), interceptors_(interceptors), method_(method) {}
  void serve(const detail::IncomingRequest& request) override;
  detail::Handler& own() const noexcept { return *handler_; }

 private:
  const std::unique_ptr<detail::Handler> handler_;
  const ServerInterceptors& interceptors_;
  const detail::ServedMethod& method_;
};

// Answers a request whose body has a form: runs the interceptors, makes the arguments, and runs the handler. If the
// server has interceptors, the handler of the method is an InterceptedHandler.
void serve_with_form(const ServerInterceptors& interceptors, const detail::ServedMethod& method,
                     const detail::IncomingRequest& request, const BodyForm& form);

}  // namespace hawser::rpc
