#include "hawser/client.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/try.h"
#include "base/what_of.h"
#include "hawser/detail/loop_access.h"
#include "rpc/client/client_state.h"

namespace hawser {
namespace {

Error not_connected() {
  return Error::of_connection(ErrorCode::not_sent, "not connected: co_await connect(address) first");
}

}  // namespace

Client::Client(Loop* loop, std::shared_ptr<transport::Network> network, ClientOptions options)
    : state_(std::make_unique<State>(loop, std::move(network), std::move(options))), link_(&state_->link) {
  state_->link.reason = not_connected();
  for (const auto& interceptor : state_->options.interceptors) add_interceptor(interceptor);
}

Client::~Client() = default;

void Client::add_interceptor(std::shared_ptr<detail::Interceptor<OutgoingCall>> interceptor) {
  if (!state_->interception) {
    state_->interception =
        std::make_shared<rpc::ClientInterception>(state_->options.call_timeout, state_->options.calls_in_flight_max);
    state_->interception->attach(static_cast<rpc::ConnectionLink&>(*link_));
    state_->watch_interception();
  }
  state_->interception->add(std::move(interceptor));
}

Task<Result<void>> Client::connect(std::string address) { return state_->connect(std::move(address)); }
void Client::close() { state_->close("the client was closed"); }
std::size_t Client::calls_in_flight() const noexcept {
  std::size_t sum = state_->pending_calls ? state_->pending_calls->size() : 0;
  for (const auto& session : state_->finishing) sum += session->calls_in_flight();
  if (state_->interception) sum += state_->interception->calls_waiting();
  return sum + (state_->session ? state_->session->calls_in_flight() : 0);
}
Time Client::last_used() const noexcept { return state_->session ? state_->session->last_used() : Time{}; }
bool Client::going_away() const noexcept { return state_->session && state_->session->going_away(); }
std::string_view Client::transport() const noexcept {
  return state_->session ? state_->session->connection().transport() : std::string_view();
}
const std::vector<TransportFallback>& Client::fallback_reasons() const noexcept { return state_->fallback_reasons; }
std::uint64_t Client::failovers() const noexcept { return state_->failovers; }
void Client::enable(TransportSpec transport) {
  state_->options.transports.enable(std::move(transport));
  state_->transports.reset();
}
std::vector<std::shared_ptr<transport::Transport>> Client::transports() const {
  return state_->network->transports(state_->options.transports);
}
std::shared_ptr<detail::RegionTable> Client::regions() const { return state_->regions; }
const std::string& Client::address() const noexcept { return state_->address; }

Task<Result<Duration>> Client::ping() {
  const std::shared_ptr<rpc::ClientSession> session = state_->session;
  if (!session) co_return fail(not_connected());
  co_return co_await session->ping();
}

// ---- State ----

Client::State::~State() {
  if (uses_loop) detail::LoopAccess::check_thread(*loop);
  scope.clear();
  close("the client was destroyed");
  if (interception) interception->end("the client was destroyed");
  if (uses_loop) detail::LoopAccess::remove_user(*loop, *this);
}

Result<void> Client::State::acquire_loop() {
  Loop* const here = Loop::current();
  if (loop == nullptr) loop = here;
  if (loop == nullptr) {
    return fail(ErrorCode::invalid_argument,
                "connect() runs on no loop: await it within sync_wait() or Loop::run(), or give the Client a loop");
  }
  if (here != nullptr && here != loop) {
    return fail(
        ErrorCode::invalid_argument,
        "this client belongs to another loop than the one that runs here: use it on its own loop, or use another "
        "Client here");
  }
  if (here == nullptr) detail::LoopAccess::check_thread(*loop);
  if (!std::exchange(uses_loop, true)) detail::LoopAccess::add_user(*loop, *this);
  return {};
}

// The loop ends when sync_wait() returns, or when a Loop is destroyed before the clients that use it.
void Client::State::on_loop_end() noexcept {
  // The sessions live until the end of this function: the loop runs no posted work any more.
  const std::list<std::shared_ptr<rpc::ClientSession>> old = finishing;
  const std::shared_ptr<rpc::ClientSession> last = session;
  loop_ending = true;
  scope.clear();
  close("the loop has ended");
  for (const auto& one : old) one->release_connection();
  if (last) last->release_connection();  // A coroutine that waits in ping() owns the session.
  if (interception) interception->end("the loop has ended");
  link.set(nullptr);
  link.reason = Error::of_connection(
      ErrorCode::not_sent,
      "not connected any more: the loop that this client was connected on has ended, as the one of sync_wait() "
      "does when that returns: connect and call within one sync_wait(), or use a Loop that lives longer");
  transports.reset();
  attempted.reset();
  loop = nullptr;
  uses_loop = false;
  loop_ending = false;
}

// The loop destroys the session, since this function may be called from within the session.
void Client::State::release_later(std::shared_ptr<rpc::ClientSession> gone) {
  if (!loop_ending) loop->post([held = std::move(gone)] {});
}

Task<Result<void>> Client::State::connect(std::string to) {
  CO_TRY(acquire_loop());
  if ((current_attempt || session) && to != address) {
    co_return fail(ErrorCode::invalid_argument,
                   "this client is connected, or connecting, to " + address + ": close() it first, or use another");
  }
  if (session) co_return Result<void>{};
  if (!attempted) attempted = std::make_shared<exec::Condition>(*loop);
  std::shared_ptr<Attempt> shared = current_attempt;
  if (!shared) {
    address = std::move(to);
    shared = begin_attempt();
  }
  const std::shared_ptr<exec::Condition> signal = attempted;  // The client may be destroyed meanwhile.
  while (!shared->outcome) {
    co_await signal->wait();
  }
  co_return *shared->outcome;
}

// If it throws, no attempt has begun.
std::shared_ptr<Client::State::Attempt> Client::State::begin_attempt() {
  const auto own = std::make_shared<Attempt>();
  auto running = attempt(own);
  current_attempt = own;
  try {
    scope.spawn(std::move(running));
  } catch (...) {
    current_attempt.reset();
    throw;
  }
  return own;
}

Task<void> Client::State::attempt(std::shared_ptr<Attempt> own) {
  try {
    co_await connect_once(own);
  } catch (const std::bad_alloc&) {
    if (own->outcome) co_return;
    // The text is so short that it needs no memory.
    const Error reason = Error::of_connection(ErrorCode::unavailable, "out of memory");
    const std::shared_ptr<rpc::PendingCallQueue> waiting = std::exchange(pending_calls, nullptr);
    if (session) {
      own->outcome.emplace();
      if (waiting) waiting->send_all(*session);
    } else {
      if (waiting) {
        not_connected_any_more(reason);
        waiting->fail_all(reason);
      }
      own->outcome.emplace(fail(reason));
    }
    current_attempt.reset();
    attempted->notify_all();
  }
}

// Also moves a connection that has lost its transport: it sends or fails the calls in the pending call queue.
Task<void> Client::State::connect_once(std::shared_ptr<Attempt> own) {
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
  const TransportFallback left = std::exchange(lost, {});
  if (opened) {
    // The transport could not be established again, so it was the cause of the failure.
    if (!left.transport.empty() && opened->transport != left.transport) {
      health.broke(left.transport, left.reason, loop->now(), options.transports);
    }
    const bool authenticated = opened->authenticated;
    use(std::move(*opened));
    log.write(*loop, LogLevel::info, [&] {
      return "connected to " + address + " over " + std::string(session->connection().transport()) +
             (authenticated ? ", authenticated within TLS" : "");
    });
    log_fallbacks();
    own->outcome.emplace();
    if (const auto waiting = std::exchange(pending_calls, nullptr)) waiting->send_all(*session);
  } else {
    if (const auto waiting = std::exchange(pending_calls, nullptr)) {
      not_connected_any_more(opened.error());
      waiting->fail_all(opened.error());
    }
    own->outcome.emplace(fail(std::move(opened.error())));
  }
  current_attempt.reset();
  attempted->notify_all();
}

void Client::State::use(Opened opened) {
  session = std::move(opened.session);
  transport = std::move(opened.transport);
  link.set(session.get());
  on_place();  // Calls of a pool wait while a connection moves, or while the session that this one replaces is full.
  health.carries(transport, loop->now());
  if (const Time when = health.next_try(); when != Time::max()) retry.start(*loop, when);
}

// Attempts run in tasks of their own, where an exception would end the process. An exception means that memory is
// exhausted, or that the poller accepts no more descriptors.
Task<Result<Client::State::Opened>> Client::State::open_session(std::string to) {
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
Task<Result<Client::State::Opened>> Client::State::open_best(std::string to) {
  const Time deadline = loop->after(options.connect_timeout);
  if (!transports) {
    CO_TRY(negotiate::TransportList&& chosen, negotiate::choose_transports(options.transports, *network));
    transports =
        std::make_shared<negotiate::AttachedTransports>(*loop, std::move(chosen), options.transports.retry_min);
  }
  // The application may enable another transport meanwhile.
  const std::shared_ptr<negotiate::AttachedTransports> own_transports = transports;
  own_transports->attach();
  const std::string& required = options.transports.required;
  for (;;) {
    CO_TRY(negotiate::Dialed&& dialed, co_await negotiate::dial(*loop, *network, to, options, *own_transports,
                                                                health.avoided(loop->now()), deadline));
    fallback_reasons = std::move(dialed.fallback_reasons);
    if (!required.empty() && required != "stream" && required != dialed.transport) {
      std::string reason = "it is not enabled, or this build or machine does not have it";
      for (const TransportFallback& one : fallback_reasons) {
        if (one.transport == required) reason = one.reason;
      }
      co_return fail(Error::of_connection(
          ErrorCode::unavailable, "TransportOptions::required is " + required + ", which cannot be used: " + reason));
    }
    const rpc::SessionSettings settings{.agreed = dialed.agreed,
                                        .regions = regions,
                                        .backlog_bytes_max = options.send_backlog_bytes_max,
                                        .ping_interval = options.ping_interval,
                                        .decode_limits = options.decode_limits,
                                        .beside_stream = !dialed.transport.empty()};
    auto made =
        std::make_shared<rpc::ClientSession>(*loop, std::move(dialed.connection), settings, options.call_timeout,
                                             static_cast<rpc::ClientSession::Owner&>(*this));
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
    health.broke(dialed.transport, works.error().text, loop->now(), options.transports);
  }
}

Task<Result<void>> Client::State::probe(rpc::ClientSession& probed, std::size_t body_bytes, Duration time) {
  MemberTimer<&rpc::ClientSession::close> alarm(probed);
  alarm.start(*loop, loop->after(time));
  const Result<Duration> answered = co_await probed.ping(body_bytes);
  if (!answered && !probed.unproved().empty()) {
    co_return fail(Error::of_transport(ErrorCode::unavailable, probed.unproved()));
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
Task<void> Client::State::failback() {
  if (!session || current_attempt || session->going_away()) co_return;
  const std::shared_ptr<rpc::ClientSession> before = session;
  Result<Opened> opened = co_await open_session(address);
  const Time now = loop->now();
  if (opened && !opened->session->closed() && session == before && opened->transport != transport &&
      !opened->transport.empty()) {
    finishing.push_back(before);
    use(std::move(*opened));
    ++failovers;
    before->finish();
    co_return;
  }
  if (opened) opened->session->close();
  if (session != before) co_return;  // The client was closed meanwhile, or lost the connection and connected again.
  health.tried_in_vain(now, options.transports);
  retry.start(*loop, health.next_try());
}

void Client::State::log_fallbacks() {
  if (std::exchange(fallbacks_logged, true)) return;
  for (const TransportFallback& one : fallback_reasons) {
    loop->log(LogLevel::info, "rpc",
              one.transport + " does not carry the connection to " + address + ": " + one.reason);
  }
}

void Client::State::close(std::string_view why) {
  if (uses_loop) detail::LoopAccess::check_thread(*loop);
  retry.stop();
  for (const auto& old : std::list(finishing)) old->close();
  if (session) session->close();
  if (!current_attempt) return;
  // Waiters learn the result now. The attempt closes the session that it may still open.
  const Error reason = Error::of_connection(ErrorCode::unavailable, std::string(why));
  std::exchange(current_attempt, nullptr)->outcome.emplace(fail(reason));
  lost = {};
  if (const std::shared_ptr<rpc::PendingCallQueue> waiting = std::exchange(pending_calls, nullptr)) {
    not_connected_any_more(reason);
    waiting->fail_all(reason);
  }
  if (attempted) attempted->notify_all();
}

void Client::State::not_connected_any_more(const Error& reason) {
  link.set(nullptr);
  link.reason = reason;
  link.reason.text = "not connected any more: " + reason.text;
  on_place();
}

// ---- The end of a session ----

// When the connection was carried by a transport beside the stream, the transport may have failed and not the peer, so
// the client tries to reach the peer over another transport. If only the end of the stream was seen, the transport may
// not be the cause: a peer whose side of the transport fails ends the stream.
bool Client::State::fails_over(const Error& reason) const noexcept {
  if (transport.empty() || !options.transports.required.empty() || session->going_away()) return false;
  return reason.scope == ErrorScope::transport ||
         (reason.initiator == Initiator::peer && reason.code != ErrorCode::protocol_error);
}

bool Client::State::take_over(rpc::ClientSession& ended, detail::CallOperation& operation, bool unsent,
                              const Error& reason) {
  if (&ended != session.get() || !fails_over(reason)) return false;
  const detail::CallOperation::Request& request = operation.request();
  if (operation.stream() != nullptr || !request.arguments_last) return false;
  if (!unsent && (request.options == nullptr || !request.options->idempotent)) return false;
  if (!pending_calls)
    pending_calls = std::make_shared<rpc::PendingCallQueue>(*loop, options.calls_in_flight_max, options.call_timeout);
  pending_calls->keep(operation, unsent);
  return true;
}

void Client::State::on_session_end(rpc::ClientSession& ended, const Error& reason) {
  for (auto at = finishing.begin(); at != finishing.end(); ++at) {
    if (at->get() != &ended) continue;
    release_later(std::move(*at));
    finishing.erase(at);
    return;
  }
  if (&ended != session.get()) return;  // The session was only being probed.
  retry.stop();
  const bool failing_over = fails_over(reason);
  release_later(std::move(session));
  if (!failing_over) {
    // An application that closes its client knows that.
    log.write(*loop, reason.initiator == Initiator::local ? LogLevel::debug : LogLevel::info,
              [&] { return "connection to " + address + " ended: " + reason.text; });
    return not_connected_any_more(reason);
  }
  const bool broken = reason.scope == ErrorScope::transport;
  if (broken) health.broke(transport, reason.text, loop->now(), options.transports);
  if (broken || health.ended(transport, reason.text, loop->now(), options.transports)) {
    log.write(*loop, LogLevel::warning,
              [&] { return transport + " broke, the connection to " + address + " is made anew: " + reason.text; });
  } else {
    // The server has probably ended; its transport did what it should.
    lost = {transport, reason.text};
    log.write(*loop, LogLevel::info, [&] {
      return "connection to " + address + " over " + transport + " ended, connecting again: " + reason.text;
    });
  }
  transport.clear();
  ++failovers;
  if (!pending_calls)
    pending_calls = std::make_shared<rpc::PendingCallQueue>(*loop, options.calls_in_flight_max, options.call_timeout);
  link.set(pending_calls.get());
  try {
    begin_attempt();
  } catch (const std::bad_alloc&) {
    const std::shared_ptr<rpc::PendingCallQueue> waiting = std::exchange(pending_calls, nullptr);
    not_connected_any_more(reason);
    waiting->fail_all(reason);
  }
}

}  // namespace hawser
