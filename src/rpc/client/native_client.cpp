#include "rpc/client/native_client.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/try.h"
#include "base/what_of.h"
#include "negotiate/dial.h"

namespace hawser::rpc {

NativeClient::NativeClient(Loop* on, std::shared_ptr<transport::Network> over, ClientOptions with)
    : ClientState(on, std::move(over), std::move(with), "hawser"), retry_(*this) {}

NativeClient::~NativeClient() = default;

std::size_t NativeClient::calls_in_flight() const noexcept {
  std::size_t sum = pending_calls_ ? pending_calls_->size() : 0;
  for (const auto& one : finishing_) sum += one->calls_in_flight();
  return sum + (session_ ? session_->calls_in_flight() : 0);
}

std::string_view NativeClient::transport_name() const noexcept {
  return session_ ? session_->connection().transport() : std::string_view();
}

Task<Result<Duration>> NativeClient::ping() {
  const std::shared_ptr<ClientSession> used = session_;
  if (!used) co_return fail(not_connected());
  co_return co_await used->ping();
}

void NativeClient::end_sessions(std::string_view why) {
  retry_.stop();
  for (const auto& old : std::list(finishing_)) old->close_because(why);
  if (session_) session_->close_because(why);
}

void NativeClient::on_attempt_closed(const Error& reason) {
  lost_ = {};
  fail_pending(reason);
}

PendingCallQueue& NativeClient::pending_calls() {
  if (!pending_calls_)
    pending_calls_ = std::make_shared<PendingCallQueue>(*loop, options.calls_in_flight_max, options.call_timeout);
  return *pending_calls_;
}

void NativeClient::send_pending() {
  if (const auto waiting = std::exchange(pending_calls_, nullptr)) waiting->send_all(*session_);
}

void NativeClient::fail_pending(const Error& reason) {
  if (const std::shared_ptr<PendingCallQueue> waiting = std::exchange(pending_calls_, nullptr)) {
    not_connected_any_more(reason);
    waiting->fail_all(reason);
  }
}

void NativeClient::release_loop() noexcept {
  // The sessions live until the end of this function: the loop runs no posted work any more.
  const std::list<std::shared_ptr<ClientSession>> old = finishing_;
  const std::shared_ptr<ClientSession> last = session_;
  ClientState::release_loop();
  for (const auto& one : old) one->release_connection();
  if (last) last->release_connection();  // A coroutine that waits in ping() owns the session.
  transports_.reset();
}

// The loop destroys the session, since this function may be called from within the session.
void NativeClient::release_later(std::shared_ptr<ClientSession> gone) {
  if (!loop_ending()) loop->post([held = std::move(gone)] {});
}

Task<void> NativeClient::attempt(std::shared_ptr<Attempt> own) {
  try {
    co_await connect_once(own);
  } catch (const std::bad_alloc&) {
    if (own->outcome) co_return;
    // The text is so short that it needs no memory.
    const Error reason = Error::of_connection(ErrorCode::unavailable, "out of memory");
    if (session_) {
      send_pending();
      end_attempt(*own, {});
    } else {
      fail_pending(reason);
      end_attempt(*own, fail(reason));
    }
  }
}

// Also moves a connection that has lost its transport: it sends or fails the calls in the pending call queue.
Task<void> NativeClient::connect_once(std::shared_ptr<Attempt> own) {
  Result<Opened> opened = co_await open_session(address);
  if (own->outcome) {  // The client was closed meanwhile.
    if (opened) opened->session->close();
    co_return;
  }
  // The session may have ended between its first answer and now. Then nothing else would report its end.
  if (opened && opened->session->closed()) {
    opened = fail(Error::of_connection(Initiator::peer, ErrorCode::unavailable,
                                       "the connection ended as soon as it was made: its peer has closed it"));
  }
  const TransportFallback left = std::exchange(lost_, {});
  if (opened) {
    // The transport could not be established again, so it was the cause of the failure.
    if (!left.transport.empty() && opened->transport != left.transport) {
      health_.broke(left.transport, left.reason, loop->now(), options.transports);
    }
    const bool authenticated = opened->authenticated;
    use(std::move(*opened));
    log_.write(*loop, LogLevel::info, [&] {
      return "connected to " + address + " over " + std::string(session_->connection().transport()) +
             (authenticated ? ", authenticated within TLS" : "");
    });
    log_fallbacks();
    send_pending();
    end_attempt(*own, {});
  } else {
    fail_pending(opened.error());
    end_attempt(*own, fail(std::move(opened.error())));
  }
}

void NativeClient::use(Opened opened) {
  session_ = std::move(opened.session);
  transport_ = std::move(opened.transport);
  link.set(session_.get());
  place_freed();  // Calls of a pool wait while a connection moves, or while the session that this one replaces is full.
  health_.carries(transport_, loop->now());
  if (const Time when = health_.next_try(); when != Time::max()) retry_.start(*loop, when);
}

// Attempts run in tasks of their own, where an exception would end the process. An exception means that memory is
// exhausted, or that the poller accepts no more descriptors.
Task<Result<NativeClient::Opened>> NativeClient::open_session(std::string to) {
  auto opening = open_best(to);
  try {
    co_return co_await std::move(opening);
  } catch (const std::bad_alloc&) {
    co_return fail(Error::of_connection(ErrorCode::unavailable, "out of memory"));
  } catch (const std::exception& error) {
    co_return fail(
        Error::of_connection(ErrorCode::unavailable, "cannot connect to " + to + ": " + std::string(what_of(error))));
  }
}

// Opens a session over the best transport that both sides have and that works. A ping tests the negotiated transport;
// if the ping fails, the transport is avoided.
Task<Result<NativeClient::Opened>> NativeClient::open_best(std::string to) {
  const Time deadline = loop->after(options.connect_timeout);
  if (!transports_) {
    CO_TRY(negotiate::TransportList&& chosen, negotiate::choose_transports(options.transports, *network));
    transports_ =
        std::make_shared<negotiate::AttachedTransports>(*loop, std::move(chosen), options.transports.retry_min);
  }
  // The application may enable another transport meanwhile.
  const std::shared_ptr<negotiate::AttachedTransports> own_transports = transports_;
  own_transports->attach();
  const std::string& required = options.transports.required;
  for (;;) {
    CO_TRY(negotiate::Dialed&& dialed, co_await negotiate::dial(*loop, *network, to, options, *own_transports,
                                                                health_.avoided(loop->now()), deadline));
    fallback_reasons = std::move(dialed.fallback_reasons);
    if (!required.empty() && required != "stream" && required != dialed.transport) {
      std::string reason = "it is not enabled, or this build or machine does not have it";
      for (const TransportFallback& one : fallback_reasons) {
        if (one.transport == required) reason = one.reason;
      }
      co_return fail(Error::of_connection(
          ErrorCode::unavailable, "TransportOptions::required is " + required + ", which cannot be used: " + reason));
    }
    const SessionSettings settings{.agreed = dialed.agreed,
                                   .regions = regions,
                                   .backlog_bytes_max = options.send_backlog_bytes_max,
                                   .ping_interval = options.ping_interval,
                                   .decode_limits = options.decode_limits,
                                   .beside_stream = !dialed.transport.empty()};
    auto made = std::make_shared<ClientSession>(*loop, std::move(dialed.connection), settings, options.call_timeout,
                                                static_cast<ClientSession::Owner&>(*this));
    const bool proves = dialed.proof != nullptr;
    if (proves) made->require_proof(std::move(dialed.proof), deadline);
    made->start();
    if (dialed.transport.empty()) co_return Opened{std::move(made), {}};
    // The probe gets a part of the remaining time, so that time remains to try another transport.
    Result<void> works = co_await probe(*made, 0, (deadline - loop->now()) / 2);
    bool shorter = false;
    if (works) {
      const std::size_t probe_bytes = dialed.worker->select_device(dialed.local).probe_bytes();
      if (probe_bytes != 0) {
        works = co_await probe(*made, probe_bytes, (deadline - loop->now()) / 2);
      }
      if (works) co_return Opened{std::move(made), std::move(dialed.transport), proves};
      // The network between the peers does not carry packets of that size.
      shorter = dialed.worker->select_device(dialed.local).use_shorter_packets(dialed.parameters);
    }
    made->close();
    if (shorter && loop->now() < deadline) {
      loop->log(
          LogLevel::warning, "rpc",
          dialed.transport + " to " + to +
              " carries short messages and no long ones: trying shorter packets (check the MTU of every switch and "
              "interface on the way)");
      continue;
    }
    if (loop->now() >= deadline) {
      co_return fail(Error::of_connection(
          ErrorCode::unavailable, dialed.transport + " was agreed on but carries nothing: " + works.error().text));
    }
    health_.broke(dialed.transport, works.error().text, loop->now(), options.transports);
  }
}

Task<Result<void>> NativeClient::probe(ClientSession& probed, std::size_t body_bytes, Duration time) {
  MemberTimer<&ClientSession::close> alarm(probed);
  alarm.start(*loop, loop->after(time));
  const Result<Duration> answered = co_await probed.ping(body_bytes);
  if (!answered && !probed.unproved().empty()) {
    co_return fail(Error::of_transport(ErrorCode::unavailable, std::string(probed.unproved())));
  }
  if (!answered) {
    co_return fail(Error::of_transport(ErrorCode::unavailable, body_bytes == 0
                                                                   ? "a first ping over it was not answered"
                                                                   : "a first ping of " + std::to_string(body_bytes) +
                                                                         " bytes over it was not answered"));
  }
  co_return Result<void>{};
}

// Tries a transport again that broke. If it works, new calls use it, and the present session ends with its last call.
Task<void> NativeClient::failback() {
  if (!session_ || connecting() || session_->going_away()) co_return;
  const std::shared_ptr<ClientSession> before = session_;
  Result<Opened> opened = co_await open_session(address);
  const Time now = loop->now();
  if (opened && !opened->session->closed() && session_ == before && opened->transport != transport_ &&
      !opened->transport.empty()) {
    finishing_.push_back(before);
    use(std::move(*opened));
    ++failovers;
    before->finish();
    co_return;
  }
  if (opened) opened->session->close();
  if (session_ != before) co_return;  // The client was closed meanwhile, or lost the connection and connected again.
  health_.tried_in_vain(now, options.transports);
  retry_.start(*loop, health_.next_try());
}

void NativeClient::log_fallbacks() {
  if (std::exchange(fallbacks_logged_, true)) return;
  for (const TransportFallback& one : fallback_reasons) {
    loop->log(LogLevel::info, "rpc",
              one.transport + " does not carry the connection to " + address + ": " + one.reason);
  }
}

// ---- The end of a session ----

// When the connection was carried by a transport beside the stream, the transport may have failed and not the peer, so
// the client tries to reach the peer over another transport. If only the end of the stream was seen, the transport may
// not be the cause: a peer whose side of the transport fails ends the stream.
bool NativeClient::fails_over(const Error& reason) const noexcept {
  if (transport_.empty() || !options.transports.required.empty() || session_->going_away()) return false;
  return reason.scope == ErrorScope::transport ||
         (reason.initiator == Initiator::peer && reason.code != ErrorCode::protocol_error);
}

bool NativeClient::take_over(ClientSession& ended, detail::CallOperation& operation, bool unsent, const Error& reason) {
  if (&ended != session_.get() || !fails_over(reason)) return false;
  const detail::CallOperation::Request& request = operation.request();
  if (operation.stream() != nullptr || !request.arguments_last) return false;
  if (!unsent && (request.options == nullptr || !request.options->idempotent)) return false;
  pending_calls().keep(operation, unsent);
  return true;
}

void NativeClient::on_session_end(ClientSession& ended, const Error& reason) {
  for (auto at = finishing_.begin(); at != finishing_.end(); ++at) {
    if (at->get() != &ended) continue;
    release_later(std::move(*at));
    finishing_.erase(at);
    return;
  }
  if (&ended != session_.get()) return;  // The session was only being probed.
  retry_.stop();
  const bool failing_over = fails_over(reason);
  release_later(std::move(session_));
  if (!failing_over) {
    // An application that closes its client knows that.
    log_.write(*loop, reason.initiator == Initiator::local ? LogLevel::debug : LogLevel::info,
               [&] { return "connection to " + address + " ended: " + reason.text; });
    return not_connected_any_more(reason);
  }
  const bool broken = reason.scope == ErrorScope::transport;
  if (broken) health_.broke(transport_, reason.text, loop->now(), options.transports);
  if (broken || health_.ended(transport_, reason.text, loop->now(), options.transports)) {
    log_.write(*loop, LogLevel::warning,
               [&] { return transport_ + " broke, the connection to " + address + " is made anew: " + reason.text; });
  } else {
    // The server has probably ended; its transport did what it should.
    lost_ = {transport_, reason.text};
    log_.write(*loop, LogLevel::info, [&] {
      return "connection to " + address + " over " + transport_ + " ended, connecting again: " + reason.text;
    });
  }
  transport_.clear();
  ++failovers;
  link.set(&pending_calls());
  try {
    begin_attempt();
  } catch (const std::bad_alloc&) {
    fail_pending(reason);
  }
}

}  // namespace hawser::rpc
