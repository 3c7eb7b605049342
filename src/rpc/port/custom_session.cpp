#include "rpc/port/custom_session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/decimal_text.h"
#include "base/try.h"
#include "hawser/detail/send_reply.h"

namespace hawser::rpc {

// ---- The coroutine ----

CustomSession::CustomSession(PortHost& host, std::unique_ptr<transport::Stream> stream, Bytes first,
                             const CustomProtocol& served)
    : ByteSession(host, std::move(stream), first),
      ProtocolConnection(static_cast<detail::ReplySink&>(*this)),
      served_(served),
      calls_here_(std::make_shared<LocalCalls>(host.loop, static_cast<LocalCalls::Runner&>(*this))),
      arrived_(host.loop),
      room_(host.loop),
      idle_(*this) {
  hold();
}

CustomSession::~CustomSession() {
  coroutine_.clear();
  calls_here_->detach();
}

void CustomSession::on_start() {
  ByteSession::on_start();
  if (closed()) return;
  coroutine_.spawn(serve_connection());
}

Task<void> CustomSession::serve_connection() {
  running_ = true;
  std::string thrown;
  try {
    co_await served_.serve(*this);
  } catch (...) {
    thrown = detail::exception_text();
  }
  running_ = false;
  if (thrown.empty()) {
    finish();
    send_soon();
  } else {
    end_session(Error::of_connection(ErrorCode::internal,
                                     exception_error({}, served_.name, "the protocol", std::move(thrown)).text));
  }
  if (closed()) check_idle();
}

// ---- Receiving ----

class CustomSession::Waiting {
 public:
  Waiting(CustomSession& session, Wait what, bool in_message) : session_(session) {
    session.wait_ = what;
    session.in_message_ = in_message;
    session.turn_ = 0;
    if (in_message) {
      session.release();
    } else if (session.server_stops_) {
      session.finish();
    } else {
      if (session.served_.idle_timeout != forever) {
        session.idle_.start(session.host().loop, session.host().loop.after(session.served_.idle_timeout));
      }
      session.release();
    }
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    session_.idle_.stop();
    session_.wait_ = Wait::nothing;
    session_.memory_ = {};
    session_.in_message_ = false;
    session_.hold();
  }

 private:
  CustomSession& session_;
};

// A client that sends many short messages at once must not keep the loop.
bool CustomSession::turn_is_over() noexcept {
  constexpr unsigned turn_receptions_max = 64;
  return ++turn_ % turn_receptions_max == 0;
}

Task<Result<Bytes>> CustomSession::receive(std::size_t least) {
  const std::size_t most = host().options.message_bytes_max;
  if (least > most) {
    co_return hawser::fail(ErrorCode::limit_exceeded, "receive() of " + count_text(least, "byte") +
                                                          " exceeds message_bytes_max (" + std::to_string(most) +
                                                          "): raise ServerOptions::message_bytes_max");
  }
  if (turn_is_over()) co_await host().loop.sleep(Duration::zero());
  if (unread_.size() < least && !gone()) {
    least_ = least;
    const Waiting waiting(*this, Wait::bytes, unread_.size() != 0);
    while (wait_ != Wait::nothing && !gone()) {
      co_await arrived_.wait();
    }
  }
  if (unread_.size() < least) co_return hawser::fail(end_error(unread_.size(), least));
  co_return unread_.bytes();
}

// Bytes that are consumed end a message, and bytes that are only looked at do not: a slow peer is measured by that.
void CustomSession::consume(std::size_t bytes) noexcept {
  if (bytes != 0) message_received();
  unread_.begin += std::min(bytes, unread_.size());
  if (unread_.size() != 0) return;
  unread_ = {};
  account().set_arriving(0);
}

Task<Result<void>> CustomSession::receive_into(MutableBytes memory) {
  if (turn_is_over()) co_await host().loop.sleep(Duration::zero());
  const std::size_t here = std::min(memory.size(), unread_.size());
  if (here != 0) std::memcpy(memory.data(), unread_.bytes().data(), here);
  consume(here);
  if (here == memory.size()) co_return Result<void>();
  std::size_t held = here;
  if (!gone()) {
    memory_ = memory.subspan(here);
    const Waiting waiting(*this, Wait::memory, true);
    while (wait_ != Wait::nothing && !gone()) {
      co_await arrived_.wait();
    }
    if (wait_ == Wait::nothing) co_return Result<void>();
    held = memory.size() - memory_.size();
  }
  co_return hawser::fail(end_error(held, memory.size()));
}

Task<Result<std::string>> CustomSession::receive_until(std::string_view end, std::size_t bytes_max) {
  std::size_t seen = 0;
  for (;;) {
    Result<Bytes> bytes = co_await receive(seen + 1);
    if (!bytes) co_return std::unexpected(std::move(bytes.error()));
    const std::string_view text = as_text(*bytes);
    const std::size_t at = text.find(end, seen - std::min(seen, end.size()));
    if (at != std::string_view::npos && at <= bytes_max) {
      std::string found(text.substr(0, at));
      consume(at + end.size());
      co_return found;
    }
    seen = text.size();
    if ((seen >= bytes_max && seen - bytes_max >= end.size()) || at != std::string_view::npos) {
      co_return hawser::fail(ErrorCode::limit_exceeded, "the first " + std::to_string(bytes_max) +
                                                            " bytes have no end: end the connection, or allow more");
    }
  }
}

std::size_t CustomSession::take(Bytes bytes, Block& block) {
  if (wait_ == Wait::nothing) return 0;
  if (wait_ == Wait::memory) {
    const std::size_t taken = std::min(bytes.size(), memory_.size());
    std::memcpy(memory_.data(), bytes.data(), taken);
    direct_received(taken);
    return taken;
  }
  if (!keep(bytes, block)) return bytes.size();
  if (unread_.size() >= least_) {
    satisfied();
  } else {
    in_message_ = true;
    idle_.stop();
  }
  return bytes.size();
}

// Adds received bytes to unread_. False if there is no memory for them: the session has ended.
bool CustomSession::keep(Bytes bytes, Block& block) {
  if (unread_.size() == 0 && bytes.size() >= least_ && account().set_arriving(block.size())) {
    unread_ = {Buffer::share(&block, bytes.data(), bytes.size()), 0, bytes.size(), true};
    return true;
  }
  if (unread_.shared || unread_.memory.size() - unread_.end < bytes.size()) {
    const std::size_t held = unread_.size();
    const std::size_t wanted = held + bytes.size();
    constexpr std::size_t least_bytes = 512;
    const std::size_t size =
        std::max({wanted, std::min(wanted + wanted / 2, least_ + receive_block_bytes), least_bytes});
    if (!account().set_arriving(size)) {
      end_session(unkept_error(account()));
      return false;
    }
    Buffer larger = Buffer::allocate(size);
    if (held != 0) std::memcpy(larger.mutable_data(), unread_.bytes().data(), held);
    unread_ = {std::move(larger), 0, held, false};
  }
  std::memcpy(unread_.memory.mutable_data() + unread_.end, bytes.data(), bytes.size());
  unread_.end += bytes.size();
  return true;
}

MutableBytes CustomSession::direct_space() { return wait_ == Wait::memory ? memory_ : MutableBytes(); }

void CustomSession::direct_received(std::size_t bytes) {
  memory_ = memory_.subspan(bytes);
  if (!memory_.empty()) return;
  message_received();
  satisfied();
}

void CustomSession::satisfied() {
  wait_ = Wait::nothing;
  hold();
  arrived_.notify_all();
}

// ---- Sending ----

Task<Result<void>> CustomSession::send(Bytes bytes) {
  constexpr std::size_t part_bytes_max = 64 * 1024;
  do {
    while (!has_room() && !closed()) {
      co_await room_.wait();
    }
    if (closed()) co_return hawser::fail(end_error(0, 0));
    const Bytes part = bytes.first(std::min(bytes.size(), part_bytes_max));
    write(part);
    bytes = bytes.subspan(part.size());
  } while (!bytes.empty());
  co_return Result<void>();
}

// ---- Calls ----

Result<void> CustomSession::run(const Dispatcher::Method& method, std::uint32_t call,
                                const detail::CallOperation& operation, Buffer body, Buffer payload, Buffer metadata) {
  if (closed()) return hawser::fail(ErrorCode::not_sent, "the connection has ended");
  host().counters.calls.add(1);
  const std::size_t calls_max = host().options.calls_per_connection_max;
  if (full_for_accepted(calls_max)) {
    host().counters.calls_refused.add(1);
    return std::unexpected(full_for_accepted_error(calls_max));
  }
  const CallOptions* const options = operation.request().options;
  const std::size_t attachment_bytes = options != nullptr ? options->attachment.size() : 0;
  detail::IncomingRequest request{.sink = *this,
                                  .call = call,
                                  .body = body.bytes(),
                                  .payload = payload.bytes().first(payload.size() - attachment_bytes),
                                  .attachment = payload.bytes().last(attachment_bytes),
                                  .metadata = MetadataView(metadata.bytes()),
                                  .head_block = body.block(),
                                  .payload_block = payload.block(),
                                  .account = bounded_account(),
                                  .decode_limits = &host().options.decode_limits};
  if (operation.deadline() != Time::max()) request.deadline = operation.deadline();
  serve(method, request);
  return {};
}

std::byte* CustomSession::begin_reply(std::uint32_t call, const codec::EncodedSize& size,
                                      const detail::ReplyExtras& extras) {
  if (size.too_large) {
    reply_error(call, Error::of_call(size.code, std::string("the result can't be encoded: ") + size.why_not));
    return nullptr;
  }
  count_reply(call, size.body + size.payload + extras.attachment.size());
  calls().answered(wire::CallId::from_number(call));
  return calls_here_->begin_answer(call, size, extras);
}

void CustomSession::end_reply(std::span<const ConstBuffer> pieces, SendCompletion* owner) {
  calls_here_->end_answer(pieces);
  if (owner != nullptr) owner->on_send_complete();
}

void CustomSession::reply_error(std::uint32_t call, const Error& error) {
  Error for_caller = error;
  for_caller.code = code_for_caller(call, error.code);
  count_error(call, for_caller.code, error);
  calls().answered(wire::CallId::from_number(call));
  calls_here_->fail(call, for_caller);
}

// ---- The end ----

void CustomSession::go_away() {
  if (std::exchange(server_stops_, true)) return;
  begin_ending();
  if (wait_ == Wait::nothing || in_message_) return;
  finish();
}

std::size_t CustomSession::destroy_calls(std::size_t calls_max) {
  coroutine_.clear();
  running_ = false;
  const std::size_t destroyed = PortSession::destroy_calls(calls_max);
  if (closed()) check_idle();
  return destroyed;
}

void CustomSession::idle_too_long() {
  idle_ended_ = true;
  finish();
}

void CustomSession::on_end(const Error& reason) {
  end_reason_ = reason;
  idle_.stop();
  arrived_.notify_all();
  room_.notify_all();
  const StopsTokens stops(host());
  ended_.request_stop();
}

// `wanted`: the bytes that the coroutine waited for. `held`: those of them that have come.
Error CustomSession::end_error(std::size_t held, std::size_t wanted) const {
  if (held != 0) {
    return Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                "the connection ended after " + std::to_string(held) + " of at least " +
                                    count_text(wanted, "byte") + " of a message");
  }
  if (end_reason_) {
    return Error::of_connection(end_reason_->initiator, ErrorCode::unavailable,
                                "the connection has ended: " + end_reason_->text);
  }
  const std::string_view why = server_stops_ ? "the server is stopping"
                               : idle_ended_ ? "no message came within idle_timeout"
                                             : "the client has ended the connection";
  return Error::of_connection(ErrorCode::unavailable, std::string(why));
}

}  // namespace hawser::rpc
