#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "hawser/detail/call_channel.h"
#include "hawser/timer.h"
#include "rpc/port/call_states.h"
#include "rpc/server/dispatcher.h"

namespace hawser::rpc {

// Calls that a session of the server makes to the server's own handlers, by the interface of a client's session. Loop's
// thread only.
class LocalCalls final : public detail::CallChannel, public std::enable_shared_from_this<LocalCalls> {
 public:
  // So many handlers begin in one tick, and further ones in the next ticks: a caller does not suspend while handlers
  // answer at once.
  static constexpr std::size_t calls_tick_max = 256;

  // The session, which runs the handlers.
  class Runner {
   public:
    virtual const Dispatcher& dispatcher() const noexcept = 0;
    // Runs the handler on a request of these parts.
    virtual Result<void> run(const Dispatcher::Method& method, std::uint32_t call,
                             const detail::CallOperation& operation, Buffer body, Buffer payload, Buffer metadata) = 0;
    virtual void stop(std::uint32_t call, const Error& why) noexcept = 0;

   protected:
    ~Runner() = default;
  };

  LocalCalls(Loop& loop, Runner& runner) : loop_(loop), runner_(&runner) {}
  // The session goes away. Operations that are left end with an error.
  void detach();
  detail::ClientLink& link() noexcept { return link_; }

  // The answer of a handler, in two steps as of detail::ReplySink. begin_answer() returns null if nobody awaits it.
  std::byte* begin_answer(std::uint32_t call, const codec::EncodedSize& size, const detail::ReplyExtras& extras);
  void end_answer(std::span<const ConstBuffer> pieces);
  void fail(std::uint32_t call, const Error& error);

  // ---- detail::CallChannel ----
  Loop& loop() noexcept override { return loop_; }
  void start(detail::CallOperation& operation) override;
  void abandon(detail::CallOperation& operation) noexcept override;
  // Requests are copied: nothing is on loan.
  void copy_and_release(SendCompletion&) override {}
  std::weak_ptr<detail::CallChannel> weak() noexcept override { return weak_from_this(); }
  void cancel(std::uint32_t call, const Error& error) override;

 private:
  // The parts of a request whose handler begins in a later tick.
  struct Prepared {
    const Dispatcher::Method* method;
    std::uint32_t call;
    Buffer body;
    Buffer payload;
    Buffer metadata;
  };
  Result<void> begin(detail::CallOperation& operation);
  Result<void> run_or_prepare(const detail::CallOperation& operation, Prepared request);
  Result<void> run(const detail::CallOperation& operation, Prepared request);
  void run_prepared();
  detail::CallOperation* take(std::uint32_t call) noexcept;

  Loop& loop_;
  Runner* runner_;
  detail::ClientLink link_{.channel = this, .reason = {}};
  CallStates<detail::CallOperation*> operations_;
  Time tick_{};  // The tick of the last handler that began, and how many began in it.
  std::size_t begun_ = 0;
  // The request of a call that has ended stays until run_prepared() reaches it.
  std::deque<Prepared> prepared_;
  MemberTimer<&LocalCalls::run_prepared> prepared_timer_{*this};

  // The answer that begin_answer() began.
  detail::CallOperation* answered_ = nullptr;
  Buffer body_;
  Buffer metadata_;
  std::size_t attachment_bytes_ = 0;
};

// The metadata as on the wire. Error: limit_exceeded.
Result<Buffer> encode_metadata(const Metadata& metadata);

}  // namespace hawser::rpc
