#include "rpc/server/server_loop.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "base/idle_memory.h"
#include "hawser/detail/handler.h"
#include "rpc/negotiation/dial.h"
#include "transport/common/framed_connection.h"

namespace hawser::rpc {
namespace {

// Time that a stopping server waits after it has cancelled calls, and again for connections to close.
constexpr Duration last_wait = std::chrono::seconds(1);

// While a server stops, it checks sessions without a call in this interval, and ends a session that was silent in so
// many successive checks: its client does not answer GOAWAY. Checks are counted instead of time, so that a pause of
// this process counts as one check.
constexpr Duration silence_check = std::chrono::milliseconds(250);
constexpr unsigned silent_checks_max = 4;

// Refusals come as fast as an attacker connects, so their log lines are limited.
constexpr Duration refusal_line_interval = std::chrono::seconds(1);

}  // namespace

ServerLoop::~ServerLoop() {
  detail::LoopAccess::forget_work(loop_);
  background_.clear();
  // Calls are destroyed first, because their coroutines use the sessions.
  for (const auto& session : sessions_) session->destroy_calls();
  // Offloaded functions that run cannot be ended. Their results arrive in the loop's mailbox.
  for (const auto& session : sessions_) {
    while (session->active_calls() != 0) {
      loop_.run_posted();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  host_.methods.stop_timing(loop_);
  shared_.connections.fetch_sub(sessions_.size(), std::memory_order_relaxed);
}

bool ServerLoop::handles(const void* frame) const noexcept {
  return frame != nullptr &&
         std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& session) { return session->handles(frame); });
}

void ServerLoop::prepare_if_possible() noexcept {
  try {
    prepare();
  } catch (const std::exception&) {
    loop_.log(LogLevel::warning, "rpc", "transports beside the stream could not be prepared: out of memory?");
  }
}

void ServerLoop::adopt(std::unique_ptr<transport::Stream> stream) {
  host_.counters.connections_accepted.add(1);
  if (phase_ != Phase::serving) return;
  try {
    admit(std::move(stream));
  } catch (const std::exception& error) {
    // Memory is exhausted, or the poller accepts no more descriptors.
    host_.counters.connections_refused.add(1);
    log_dropped(error);
  }
}

void ServerLoop::admit(std::unique_ptr<transport::Stream> stream) {
  auto handshake =
      std::make_unique<Handshake>(loop_, std::move(stream), loop_.after(options_.handshake_timeout),
                                  static_cast<Handshake::Done&>(*this), &shared_.protocols, options_.security.get());
  if (attempts_.size() >= options_.handshakes_max && !evict_silent()) {
    return refuse(*handshake, "the server has handshakes_max (" + std::to_string(options_.handshakes_max) +
                                  ") handshakes going on: try again later, or raise it");
  }
  const Time deadline = handshake->deadline();
  attempts_.emplace_back().handshake = std::move(handshake);
  attempts_.back().deadline = deadline;
}

// Makes room for a new connection by closing the oldest attempt that has been refused, else the oldest without a hello,
// else the oldest that does not answer the selection of a transport. Returns false if no attempt is silent.
bool ServerLoop::evict_silent() {
  const auto leaving = std::find_if(attempts_.begin(), attempts_.end(),
                                    [](const ConnectionAttempt& one) { return one.handshake->leaving(); });
  if (leaving != attempts_.end()) {
    attempts_.erase(leaving);
    return true;
  }
  const auto silent = [this](bool selected) {
    return std::find_if(attempts_.begin(), attempts_.end(), [&](const ConnectionAttempt& one) {
      return !one.handshake->heard() && (one.selector != nullptr) == selected;
    });
  };
  auto oldest = silent(false);
  if (oldest == attempts_.end()) oldest = silent(true);
  if (oldest == attempts_.end()) return false;
  refuse(*oldest->handshake, "no hello or answer came while handshakes_max (" +
                                 std::to_string(options_.handshakes_max) + ") newer connections arrived");
  attempts_.erase(oldest);
  return true;
}

// Sends the reason. The caller destroys the handshake.
void ServerLoop::refuse(Handshake& handshake, std::string why) {
  host_.counters.connections_refused.add(1);
  log_refusal("connection from " + handshake.stream().peer() + " refused: " + why);
  wire::Hello hello{.version_min = wire::version, .version_max = wire::version};
  hello.refusal = Error::of_connection(ErrorCode::overloaded, std::move(why));
  handshake.send(hello);
  handshake.stream().finish();
}

void ServerLoop::log_refusal(const std::string& text) {
  if (loop_.now() < next_refusal_line_) return;
  next_refusal_line_ = loop_.now() + refusal_line_interval;
  loop_.log(LogLevel::warning, "rpc", text);
}

// Memory is often exhausted here, and the text may need memory as well.
void ServerLoop::log_dropped(const std::exception& error) noexcept {
  try {
    log_refusal(std::string("connection dropped: ") + error.what());
  } catch (const std::exception&) {
    // The connection is counted without a log line.
  }
}

ServerLoop::ConnectionAttempts::iterator ServerLoop::find(Handshake& handshake) {
  return std::find_if(attempts_.begin(), attempts_.end(),
                      [&](const ConnectionAttempt& one) { return one.handshake.get() == &handshake; });
}

std::optional<Error> ServerLoop::refusal(const ConnectionAttempt& attempt) const {
  const wire::Hello& theirs = attempt.theirs;
  if (theirs.version_min > wire::version || theirs.version_max < wire::version) {
    return Error::of_connection(ErrorCode::protocol_error, "the server speaks version 1 of the protocol, the client " +
                                                               std::to_string(theirs.version_min) + " to " +
                                                               std::to_string(theirs.version_max));
  }
  if (theirs.message_bytes_max < wire::message_bytes_least) {
    return Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                "invalid client HELLO: message_bytes_max is " +
                                    std::to_string(theirs.message_bytes_max) + ", and the shortest message has " +
                                    std::to_string(wire::message_bytes_least) + " bytes");
  }
  if (std::optional<Error> why = refusal_of_plain(attempt)) return why;
  return refusal();
}

std::optional<Error> ServerLoop::refusal_of_plain(const ConnectionAttempt& attempt) const {
  if (attempt.secured || options_.security == nullptr) return std::nullopt;
  std::string why = options_.security->refusal_of_plain(attempt.handshake->stream());
  if (why.empty()) return std::nullopt;
  return Error::of_connection(ErrorCode::protocol_error, std::move(why));
}

std::string_view ServerLoop::stream_only(const ConnectionAttempt& attempt) const noexcept {
  if (!attempt.secured) return {};
  const std::string_view why = options_.security->stream_only(attempt.handshake->stream());
  if (!why.empty()) return why;
  return refusal_of_path(attempt.theirs.protection,
                         std::min<std::size_t>(attempt.theirs.message_bytes_max, options_.message_bytes_max));
}

std::optional<Error> ServerLoop::refusal() const {
  if (shared_.connections.load(std::memory_order_relaxed) >= options_.connections_max) {
    return Error::of_connection(
        ErrorCode::overloaded,
        "the server has connections_max (" + std::to_string(options_.connections_max) + ") connections already");
  }
  if (phase_ != Phase::serving) {
    return Error::of_connection(ErrorCode::unavailable, "the server is stopping");
  }
  return std::nullopt;
}

void ServerLoop::on_hello(Handshake& handshake, Result<wire::Hello> hello) {
  guard(handshake, [&] { continue_handshake(find(handshake), std::move(hello)); });
}

// Performs a step of a handshake. An exception (no memory, or no more descriptors for the poller) costs the connection.
template <class Step>
void ServerLoop::guard(Handshake& handshake, Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    const auto attempt = find(handshake);
    if (attempt == attempts_.end()) return;  // The attempt has become a session, which ends by itself.
    host_.counters.handshakes_failed.add(1);
    attempts_.erase(attempt);
    log_dropped(error);
  }
}

void ServerLoop::continue_handshake(ConnectionAttempts::iterator attempt, Result<wire::Hello> hello) {
  if (attempt->handshake->leaving()) {
    attempts_.erase(attempt);
    return;
  }
  if (!hello) {
    const std::string connection = "connection from " + attempt->handshake->stream().peer();
    // Load balancers and monitors connect and close, or reset, to find out whether the port is open.
    if (attempt->handshake->ended_silently() && !attempt->secured && attempt->selector == nullptr) {
      loop_.log(LogLevel::debug, "rpc", connection + " ended before its first byte");
      attempts_.erase(attempt);
      return;
    }
    host_.counters.handshakes_failed.add(1);
    if (const Bytes first = attempt->handshake->unknown(); !first.empty()) {
      log_refusal(connection + " refused: " + hello.error().text);
      return attempt->handshake->leave(unknown_answer(first));
    }
    loop_.log(LogLevel::info, "rpc", connection + " dropped: " + hello.error().text);
    attempts_.erase(attempt);
    return;
  }
  if (attempt->selector != nullptr) return on_answer(attempt, *hello);
  attempt->theirs = std::move(*hello);
  on_first_hello(attempt);
}

// ---- Other protocols ----

void ServerLoop::on_protected(Handshake& handshake, Bytes first) {
  guard(handshake, [&] { protect(find(handshake), first); });
}

// The hello, or the first bytes of another protocol, are expected on the protected stream.
void ServerLoop::protect(ConnectionAttempts::iterator attempt, Bytes first) {
  const Time deadline = attempt->handshake->deadline();
  std::unique_ptr<transport::Stream> stream =
      options_.security->protect(loop_, attempt->handshake->release_stream(), first, shared_.alpn);
  attempt->secured = true;
  attempt->handshake = std::make_unique<Handshake>(loop_, std::move(stream), deadline,
                                                   static_cast<Handshake::Done&>(*this), &shared_.protocols);
}

// The answer to bytes of a protocol that this server does not speak: one line. HTTP clients receive it as a response.
std::string ServerLoop::unknown_answer(Bytes first) const {
  std::string line = "unknown protocol: this port speaks hawser";
  for (const auto& protocol : shared_.protocols) line += ", " + std::string(protocol->name());
  line += "\n";
  constexpr std::string_view methods[] = {"GET ", "PUT ", "POST", "HEAD", "DELE",
                                          "OPTI", "PATC", "TRAC", "CONN", "PRI "};
  const std::string_view text = as_text(first);
  if (std::ranges::none_of(methods, [&](std::string_view method) { return text.starts_with(method); })) return line;
  return "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: " +
         std::to_string(line.size()) + "\r\n\r\n" + line;
}

void ServerLoop::on_protocol(Handshake& handshake, const PortProtocol& protocol, Bytes first) {
  guard(handshake, [&] { open_protocol(find(handshake), protocol, first); });
}

void ServerLoop::open_protocol(ConnectionAttempts::iterator attempt, const PortProtocol& protocol, Bytes first) {
  std::optional<Error> why = refusal_of_plain(*attempt);
  if (!why) why = refusal();
  if (why) {
    host_.counters.connections_refused.add(1);
    log_refusal("connection from " + attempt->handshake->stream().peer() + " refused: " + why->text);
    return attempt->handshake->leave(protocol.refusal(*why));
  }
  begin_session(attempt, protocol.open(host_, attempt->handshake->release_stream(), first));
}

// ---- The library's own protocol ----

void ServerLoop::on_first_hello(ConnectionAttempts::iterator attempt) {
  const ServerOptions& options = options_;
  wire::Hello& theirs = attempt->theirs;
  attempt->ours = {
      .version_min = wire::version,
      .version_max = wire::version,
      .checksum = options.checksum && theirs.checksum,
      .memory = true,
      .message_bytes_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.message_bytes_max, UINT32_MAX)),
      .calls_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.calls_per_connection_max, 65'536)),
      .stream_window_bytes = options.stream_window_bytes,
      .refusal = refusal(*attempt),
      .protection = attempt->secured ? higher_protection(options.security->path_protection(), theirs.protection)
                                     : std::uint8_t{0}};
  if (attempt->ours.refusal) {
    host_.counters.connections_refused.add(1);  // Before the client can see the refusal.
    attempt->handshake->send(attempt->ours);
    attempt->handshake->stream().finish();
    return static_cast<void>(attempts_.erase(attempt));
  }
  const bool alone = !stream_only(*attempt).empty();
  if (!alone) transports_.attach();
  attempt->selector = std::make_unique<TransportSelector>(
      loop_, transports_, alone ? std::vector<wire::NamedBytes>() : std::move(theirs.offers),
      attempt->handshake->stream().local(),
      message_limits(theirs.message_bytes_max, options.message_bytes_max, attempt->ours.protection));
  select(attempt);
}

// Sends our hello with the next selection. If no selection is left, the stream carries the messages.
void ServerLoop::select(ConnectionAttempts::iterator attempt) {
  attempt->ours.declined.clear();
  attempt->ours.selection.reset();
  attempt->selector->select(attempt->ours, [this, attempt](bool selected) {
    guard(*attempt->handshake, [&] { on_selected(attempt, selected); });
  });
}

void ServerLoop::on_selected(ConnectionAttempts::iterator attempt, bool selected) {
  if (selected) {
    attempt->handshake->send(attempt->ours);
    attempt->handshake->expect_next();
    return;
  }
  if (const std::string_view why = stream_only(*attempt); !why.empty()) {
    const Bytes reason = as_bytes(why);
    for (const wire::NamedBytes& offer : attempt->theirs.offers) {
      attempt->ours.declined.push_back({offer.name, {reason.begin(), reason.end()}});
    }
  }
  std::shared_ptr<const Identity> identity = attempt->handshake->stream().identity();
  auto connection = std::make_unique<transport::FramedConnection>(
      loop_, attempt->handshake->release_stream(),
      transport::FramedOptions{.message_limit = wire::MessageLimit(options_.message_bytes_max)});
  connection->send_preface(wire::encode_hello(attempt->ours));
  open_session(attempt, std::move(connection), std::move(identity));
}

void ServerLoop::on_answer(ConnectionAttempts::iterator attempt, const wire::Hello& answer) {
  if (answer.unanswered) return on_connected(attempt, {}, *answer.unanswered);
  if (!answer.answer) return on_connected(attempt, {}, "the client did not answer the selection of this transport");
  attempt->selector->connect(*answer.answer, [this, attempt, bytes = *answer.answer](const Result<void>& connected) {
    guard(*attempt->handshake,
          [&] { on_connected(attempt, bytes, connected ? std::nullopt : std::optional(connected.error().text)); });
  });
}

void ServerLoop::on_connected(ConnectionAttempts::iterator attempt, Bytes answer, std::optional<std::string> failure) {
  TransportSelector& selector = *attempt->selector;
  if (failure) {
    loop_.log(LogLevel::info, "rpc",
              std::string(selector.transport()) + " does not carry the connection of " +
                  attempt->handshake->stream().peer() + ": " + *failure);
    selector.failed(std::move(*failure));
    return select(attempt);
  }
  if (attempt->secured) {
    Result<transport::PathSecurity> path = options_.security->secure_path(
        attempt->handshake->stream(), {.transport = selector.transport(),
                                       .offer = selector.offer(),
                                       .selection = attempt->ours.selection->bytes,
                                       .answer = answer,
                                       .protection = static_cast<transport::PathProtection>(attempt->ours.protection)});
    if (!path) return on_connected(attempt, {}, std::move(path.error().text));
    attempt->path = std::move(*path);
  }
  attempt->ours.declined.clear();
  attempt->ours.selection.reset();
  attempt->ours.ready = true;
  attempt->going = true;
  attempt->handshake->send(attempt->ours);
  if (attempt->handshake->sent()) open_transport(attempt);
}

void ServerLoop::on_sent(Handshake& handshake) {
  const auto attempt = find(handshake);
  if (attempt == attempts_.end() || !attempt->going) return;
  guard(handshake, [&] { open_transport(attempt); });
}

void ServerLoop::open_transport(ConnectionAttempts::iterator attempt) {
  std::shared_ptr<const Identity> identity = attempt->handshake->stream().identity();
  open_session(
      attempt,
      open_path(*attempt->selector->pending(), attempt->handshake->release_stream(), std::move(attempt->path.cipher)),
      std::move(identity));
}

void ServerLoop::open_session(ConnectionAttempts::iterator attempt, std::unique_ptr<transport::Connection> connection,
                              std::shared_ptr<const Identity> identity) {
  if (identity == nullptr) identity = connection->identity();
  const ServerOptions& options = options_;
  const wire::Hello& theirs = attempt->theirs;
  const SessionSettings settings{
      .checksum = attempt->ours.checksum,
      .peer_memory = theirs.memory,
      .regions = shared_.regions,
      .send_bytes_max =
          message_limits(theirs.message_bytes_max, options.message_bytes_max, attempt->ours.protection).send_bytes_max -
          (attempt->going ? path_overhead(attempt->ours.protection) : 0),
      .calls_max = attempt->ours.calls_max,
      .peer_window_bytes = theirs.stream_window_bytes,
      .own_window_bytes = attempt->ours.stream_window_bytes,  // The client knows it: the option may have changed.
      .backlog_bytes_max = options.send_backlog_bytes_max,
      .ping_interval = options.ping_interval,
      .decode_limits = options.decode_limits,
      .budget = &host_.budget,
      .unsent_bytes = &host_.counters.unsent_bytes,
      .peer = host_.receive_peers.find(connection->peer())};
  host_.counters.transports_declined.add(static_cast<std::int64_t>(attempt->selector->failures()));
  // The handshake may have taken nearly all of its time.
  const Time deadline = std::max(attempt->deadline, loop_.after(TransportSelector::step_max));
  auto session = std::make_unique<ServerSession>(host_, std::move(connection), settings, std::move(identity));
  if (attempt->path.proof != nullptr) session->require_proof(std::move(attempt->path.proof), deadline);
  begin_session(attempt, std::move(session));
}

void ServerLoop::begin_session(ConnectionAttempts::iterator attempt, std::unique_ptr<PortSession> made) {
  struct End final : detail::Posted {
    explicit End(ServerLoop& of) : watch(of.alive_.watch()) {}
    void run() override {
      if (ServerLoop* const loop = watch.get()) loop->remove(session);
    }
    const Watch<ServerLoop> watch;
    SessionList::iterator session;
  };
  PortSession& session = *made;
  host_.counters.count_opened(shared_.protocol_number(session.protocol()));
  if (attempt->secured) {
    session.set_protection(attempt->going ? to_string(static_cast<transport::PathProtection>(attempt->ours.protection))
                                          : "encrypted");
  }
  if (attempt->selector != nullptr) session.set_declined(std::move(attempt->selector->reasons()));
  auto end = std::make_unique<End>(*this);
  sessions_.push_back(std::move(made));
  end->session = std::prev(sessions_.end());
  attempts_.erase(attempt);
  shared_.connections.fetch_add(1, std::memory_order_relaxed);
  try {
    session.start(std::move(end));
  } catch (const std::exception& error) {
    log_dropped(error);
    session.abort(stopped_);
  }
  if (!sweep_.running()) start_sweep();
}

void ServerLoop::start_sweep() {
  if (options_.receive_rate_min == 0 || options_.receive_window <= Duration::zero() ||
      options_.receive_window == forever) {
    return;
  }
  sweep_due_ = loop_.after(options_.receive_window);
  sweep_.start(loop_, sweep_due_);
}

// If the loop itself did not run for a while, data that arrived meanwhile has not been received: a new window begins.
void ServerLoop::sweep() {
  const ServerOptions& options = options_;
  const bool late = loop_.now() - sweep_due_ > options.receive_window / 8;
  const auto window_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(options.receive_window).count());
  const std::uint64_t rate =
      std::min<std::uint64_t>(options.receive_rate_min, UINT64_MAX / std::max<std::uint64_t>(window_ms, 1));
  const std::uint64_t bytes = late ? 0 : std::max<std::uint64_t>(1, rate * window_ms / 1000);
  for (const auto& session : sessions_) session->end_if_slow(bytes);
  if (!sessions_.empty()) return start_sweep();
  release_all_idle_memory();  // Once after the end of the last connection.
}

void ServerLoop::remove(SessionList::iterator session) {
  sessions_.erase(session);
  shared_.connections.fetch_sub(1, std::memory_order_relaxed);
  if (phase_ != Phase::serving) continue_shut_down(false);
}

// ---- Background work ----

void ServerLoop::spawn(std::unique_ptr<detail::BackgroundWork> work) {
  loop_.post([watch = alive_.watch(), held = std::move(work)]() mutable {
    ServerLoop* const self = watch.get();
    if (self != nullptr && self->phase_ == Phase::serving) self->begin_background(std::move(held));
  });
}

void ServerLoop::begin_background(std::unique_ptr<detail::BackgroundWork> work) {
  try {
    background_.spawn(run_background(std::move(work)));
  } catch (const std::bad_alloc&) {
    loop_.log(LogLevel::error, "rpc", "background work does not begin: out of memory");
  }
}

Task<void> ServerLoop::run_background(std::unique_ptr<detail::BackgroundWork> work) {
  struct Working {
    explicit Working(std::size_t& tasks) noexcept : count(tasks) { ++count; }
    Working(const Working&) = delete;
    Working& operator=(const Working&) = delete;
    ~Working() { --count; }
    std::size_t& count;
  };
  std::string thrown;
  {
    const Working working(working_);
    const std::unique_ptr<detail::BackgroundWork> held = std::move(work);
    try {
      const Background background{.stopping = host_.stopping.get_token(), .token = grace_over_.get_token()};
      co_await held->begin(background);
    } catch (...) {
      thrown = "background work threw an exception: " + detail::exception_text();
    }
  }
  if (!thrown.empty()) loop_.log(LogLevel::error, "rpc", thrown);
  if (phase_ != Phase::serving) continue_shut_down(false);
}

// ---- Stopping ----

Task<void> ServerLoop::shut_down(Duration grace) {
  begin_shut_down(grace, nullptr);
  while (phase_ != Phase::stopped) {
    co_await changed_.wait();
  }
}

void ServerLoop::begin_shut_down(Duration grace, Stopped* listener) {
  if (listener != nullptr) stop_listener_ = listener;
  if (phase_ == Phase::serving) {
    phase_ = Phase::finishing;
    grace_ = grace;
    phase_end_ = loop_.after(grace);
    next_check_ = loop_.now() + silence_check;
    attempts_.clear();
    for (const auto& session : sessions_) {
      try {
        session->go_away();
      } catch (const std::bad_alloc&) {
        session->abort(stopped_);
      }
    }
  } else if (grace < grace_) {
    grace_ = grace;
    phase_end_ = std::min(phase_end_, loop_.after(grace));
  }
  {
    const StopsTokens stops(host_);
    host_.stopping.request_stop();
  }
  continue_shut_down(false);
}

// `due`: the timer calls. Only then calls are cancelled and ended, since a handler may have requested the stop.
void ServerLoop::continue_shut_down(bool due) {
  if (phase_ == Phase::stopped) return;
  if (idle()) return finish_shut_down();
  const Time now = loop_.now();
  if (due && phase_ == Phase::finishing && now >= phase_end_) {
    phase_ = Phase::cancelling;
    phase_end_ = loop_.after(std::min(grace_, last_wait));
    cancel_all();
  }
  if (due && phase_ == Phase::cancelling && now >= phase_end_) {
    phase_ = Phase::ending;
    end_all();
    if (idle()) return finish_shut_down();
  }
  // Only offloaded functions are left; they cannot be ended.
  if (phase_ == Phase::ending) return stop_timer_.stop();
  if (due) {
    for (const auto& session : sessions_) {
      if (session->silent_checks() >= silent_checks_max) session->abort(stopped_);
    }
  }
  if (due) next_check_ = now + silence_check;
  stop_timer_.start(loop_, std::min(phase_end_, next_check_));
}

void ServerLoop::finish_shut_down() noexcept {
  phase_ = Phase::stopped;
  stop_timer_.stop();
  changed_.notify_all();
  if (stop_listener_ != nullptr) stop_listener_->on_stopped();
}

void ServerLoop::cancel_all() noexcept {
  const StopsTokens stops(host_);
  grace_over_.request_stop();
  for (const auto& session : sessions_) {
    try {
      session->cancel_calls(stopped_);
    } catch (const std::bad_alloc&) {
      // The end of this phase ends these calls.
    }
  }
}

void ServerLoop::end_all() noexcept {
  background_.clear();
  for (const auto& session : sessions_) {
    session->abort(stopped_);
    session->destroy_calls();
  }
}

}  // namespace hawser::rpc
