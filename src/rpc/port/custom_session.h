#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "exec/condition.h"
#include "hawser/custom_protocol.h"
#include "hawser/scope.h"
#include "hawser/timer.h"
#include "rpc/port/byte_session.h"
#include "rpc/port/local_calls.h"

namespace hawser::rpc {

// A connection of a CustomProtocol: its coroutine receives what arrives, and calls handlers of the server. Loop's
// thread only.
class CustomSession final : public ByteSession, public ProtocolConnection, LocalCalls::Runner {
 public:
  // `served` outlives the session.
  CustomSession(PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first, const CustomProtocol& served);
  ~CustomSession() override;

  // ---- ProtocolConnection ----
  Task<Result<Bytes>> receive(std::size_t least) override;
  void consume(std::size_t bytes) noexcept override;
  Task<Result<void>> receive_into(MutableBytes memory) override;
  Task<Result<std::string>> receive_until(std::string_view end, std::size_t bytes_max) override;
  Task<Result<void>> send(Bytes bytes) override;
  std::stop_token token() const noexcept override { return ended_.get_token(); }

  // ---- PortSession ----
  void go_away() override;
  // The coroutine is destroyed as well, also before the calls that it awaits.
  std::size_t destroy_calls(std::size_t calls_max) override;

  // ---- detail::ReplySink ----
  std::string_view protocol() const noexcept override { return served_.name; }
  std::byte* begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                         const detail::ReplyExtras& extras) override;
  void end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) override;
  void reply_error(std::uint32_t call, const Error& error) override;
  std::shared_ptr<detail::StreamCore> open_stream(std::uint32_t) override { return nullptr; }

 private:
  // The coroutine waits for this.
  enum class Wait : std::uint8_t { nothing, bytes, memory };
  // Exists while the coroutine waits to receive. Only then the session takes bytes.
  class Waiting;
  // The bytes [begin, end) of `memory` that the coroutine has not consumed.
  struct Unread {
    Buffer memory;
    std::size_t begin = 0;
    std::size_t end = 0;
    bool shared = false;  // `memory` is a part of a receive block. It must not be written to.
    std::size_t size() const noexcept { return end - begin; }
    Bytes bytes() const noexcept { return memory.bytes().subspan(begin, size()); }
  };

  // ---- ByteSession ----
  std::size_t take(Bytes bytes, Block& block) override;
  MutableBytes direct_space() override;
  void direct_received(std::size_t bytes) override;
  Duration half_closed_max() const noexcept override { return served_.half_closed_timeout; }
  bool working() const noexcept override { return running_ && wait_ == Wait::nothing; }
  bool replies_due() const noexcept override { return working(); }
  bool occupied() const noexcept override { return running_; }
  bool receiving() const noexcept override { return in_message_; }
  void on_drained() override { room_.notify_all(); }
  void on_finish() override { arrived_.notify_all(); }
  void on_end(const Error& reason) override;
  void on_start() override;

  // ---- LocalCalls::Runner ----
  const Dispatcher& dispatcher() const noexcept override { return host().dispatcher; }
  Result<void> run(const Dispatcher::Method& method, std::uint32_t call, const detail::CallOperation& operation,
                   Buffer body, Buffer payload, Buffer metadata) override;
  void stop(std::uint32_t call, const Error& why) noexcept override { cancel_call(call, why); }
  detail::ClientLink& link() noexcept override { return calls_here_->link(); }

  Task<void> serve_connection();
  bool turn_is_over() noexcept;
  bool gone() const noexcept { return closed() || finishing(); }
  Error end_error(std::size_t held, std::size_t wanted) const;
  bool keep(Bytes bytes, Block& block);
  void satisfied();
  void idle_too_long();

  const CustomProtocol& served_;
  const std::shared_ptr<LocalCalls> calls_here_;

  Unread unread_;
  Wait wait_ = Wait::nothing;
  std::size_t least_ = 0;    // For Wait::bytes: the bytes that unread_ must have.
  MutableBytes memory_;      // For Wait::memory: the part that is not received yet.
  bool in_message_ = false;  // The coroutine waits for the rest of a message.
  bool idle_ended_ = false;
  bool server_stops_ = false;  // The server stops.
  bool running_ = false;       // The coroutine has begun and has not ended.
  unsigned turn_ = 0;          // Receptions since the coroutine waited last.
  exec::Condition arrived_;
  exec::Condition room_;
  std::optional<Error> end_reason_;
  std::stop_source ended_;
  MemberTimer<&CustomSession::idle_too_long> idle_;
  Scope coroutine_;  // The last member: what its frame refers to is destroyed later.
};

}  // namespace hawser::rpc
