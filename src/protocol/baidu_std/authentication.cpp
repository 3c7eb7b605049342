#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "base/decimal_text.h"
#include "base/escaped_text.h"
#include "hawser/any_stop.h"
#include "hawser/detail/receive_account.h"
#include "hawser/detail/reply_sink.h"
#include "hawser/identity.h"
#include "hawser/sync.h"
#include "hawser/with_timeout.h"
#include "protocol/baidu_std/error_codes.h"
#include "protocol/baidu_std/server_session.h"

// Who the client of a connection is.
namespace hawser::protocol::baidu_std {
namespace {

constexpr std::size_t logged_bytes_max = 256;

using Authenticated = Result<Identity>;

// The result of BaiduStdOptions::authenticate, for the two coroutines that need it.
struct Outcome {
  explicit Outcome(std::stop_token end) : stop(std::move(end)) {}
  std::optional<Authenticated> result;
  Event done;
  std::stop_token stop;
};

Error error_of_authentication(std::string text) {
  return Error::of_connection(ErrorCode::unauthenticated, std::move(text));
}

// `options` keeps the function while it runs.
Task<void> run_authenticator(std::shared_ptr<const BaiduStdOptions> options, BaiduStdLogin login, Outcome& outcome) {
  try {
    outcome.result.emplace(co_await options->authenticate(std::move(login)));
  } catch (...) {
    // The text of the exception may contain the credential, and the client has not proved who it is.
    outcome.result.emplace(fail(error_of_authentication("BaiduStdOptions::authenticate threw an exception")));
  }
  outcome.done.set();
}

bool names_somebody(const Identity& identity) noexcept {
  return !identity.subject.empty() || !identity.issuer.empty() || !identity.spiffe_id.empty() ||
         !identity.claims.empty();
}

}  // namespace

bool BaiduStdServerSession::authenticate(const RpcMeta& meta, const ReceivedFrame& frame) {
  if (options_->verify) {
    const Result<void> verified = options_->verify(meta.authentication_data, peer_name());
    authenticated_ = verified.has_value();
    if (!authenticated_) refuse_credential(meta, verified.error());
    return authenticated_;
  }
  // The block of a short message is much larger than the message, and thousands of connections may wait.
  const bool copied = frame.data.size() <= detail::ActiveCall::small_bytes_max;
  conversions_.spawn(authenticate_later(
      Buffer::copy_of(frame.meta), Buffer::keep(copied ? nullptr : frame.block, frame.data.data(), frame.data.size()),
      frame.discarded));
  return false;
}

void BaiduStdServerSession::refuse_credential(const RpcMeta& meta, const Error& why) {
  const auto second = std::chrono::duration_cast<std::chrono::seconds>(loop().now().time_since_epoch()).count();
  if (refusal_lines_->lines.take(second, RefusalLines::per_second_max)) {
    std::string line = "connection from ";
    append_escaped(line, peer_name(), logged_bytes_max);
    line += " closed: its credential is refused: ";
    append_escaped(line, why.text, logged_bytes_max);
    const std::uint64_t omitted = refusal_lines_->omitted.exchange(0, std::memory_order_relaxed);
    if (omitted != 0) line += " (without " + count_text(omitted, "line") + " before this)";
    loop().log(LogLevel::warning, "rpc", line);
  } else {
    refusal_lines_->omitted.fetch_add(1, std::memory_order_relaxed);
  }
  refuse(meta, bad_credential, why.text);
  finish();
}

Task<void> BaiduStdServerSession::authenticate_later(Buffer meta, Buffer data, bool discarded) {
  try {
    // It was parsed before.
    const Result<RpcMeta> parsed = parse_meta(meta.bytes());
    if (!parsed) co_return protocol_error(parsed.error().text);
    detail::ReceiveCharge kept;
    const std::size_t copies = meta.size() + parsed->authentication_data.size();
    if (!kept.add(account(), copies)) {
      // The connection ends, because its next message would not be the one with the credential.
      refuse(*parsed, limit_reached, unkept_error(account()).text);
      co_return finish();
    }
    const bool copied = data.size() <= detail::ActiveCall::small_bytes_max;
    detail::ReceiveCharge kept_data;
    if (!(copied ? kept_data.add(account(), data.size()) : kept_data.keep(account(), data))) {
      data = {};
      discarded = true;
    }
    begin_conversion();
    std::stop_source late;
    std::optional<detail::StopTimer> timer(std::in_place, loop(), options_->authenticate_timeout, late);
    const AnyStop stop(conversion_stop_.get_token(), late.get_token());
    Outcome outcome(stop.token());
    Scope running;
    running.spawn(run_authenticator(
        options_, {.credential = std::string(parsed->authentication_data), .peer = peer_name(), .identity = identity()},
        outcome));
    static_cast<void>(co_await outcome.done.wait(outcome.stop));
    running.clear();
    timer.reset();
    if (closed()) co_return;
    if (!outcome.result) {
      const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(options_->authenticate_timeout).count();
      outcome.result.emplace(fail(error_of_authentication(
          "the credential was not verified within authenticate_timeout (" + std::to_string(limit) + " ms)")));
    }
    if (!*outcome.result) {
      refuse_credential(*parsed, outcome.result->error());
    } else {
      Identity who = std::move(**outcome.result);
      if (who.kind == Identity::Kind::none && names_somebody(who)) who.kind = Identity::Kind::token;
      set_identity(std::move(who));
      authenticated_ = true;
      kept.reset();
      kept_data.reset();
      Block* const block = data.block() != nullptr ? data.block() : meta.block();
      on_request(*parsed, {.meta = meta.bytes(), .data = data.bytes(), .block = block, .discarded = discarded});
    }
    end_conversion();
  } catch (const std::exception&) {
    fail_connection();
  }
}

}  // namespace hawser::protocol::baidu_std
