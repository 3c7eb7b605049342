#include "rpc/server/server_loop.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "base/block_pool.h"
#include "hawser/detail/handler.h"
#include "transport/common/framed_connection.h"
#include "transport/common/payload_buffer.h"

namespace hawser::rpc {
namespace {

// Time that a stopping server waits after it has cancelled calls, and again for connections to close.
constexpr Duration last_wait = std::chrono::seconds(1);

// While a server stops, it checks sessions without a call in this interval, and ends a session that was silent in so
// many successive checks: its client does not answer GOAWAY. Checks are counted instead of time, so that a pause of
// this process counts as one check.
constexpr Duration silence_check = std::chrono::milliseconds(250);
constexpr unsigned silent_checks_max = 4;

// All connections of a loop are checked in each window.
constexpr Duration receive_window_min = std::chrono::milliseconds(1);

// Refusals come as fast as an attacker connects, so their log lines are limited.
constexpr Duration refusal_line_interval = std::chrono::seconds(1);

// Returns the memory that one message of `bytes` uses at most: its block, rounded up to a size class; the block of the
// previous step, from which it is copied; and the blocks of its head.
std::size_t message_footprint(std::size_t bytes) noexcept {
  const auto block = [](std::size_t size) {
    return size <= BlockPool::class_bytes_max ? std::bit_ceil(std::max(size, BlockPool::class_bytes_min)) : size;
  };
  return block(bytes) + block(bytes / transport::PayloadBuffer::step_factor + 1) +
         2 * transport::FramedConnection::receive_block_bytes;
}

}  // namespace

Result<void> check_memory(const ServerOptions& options) {
  const auto contradiction = [](std::string_view small, std::size_t bytes, std::string_view large, std::size_t most) {
    return fail(ErrorCode::invalid_argument, "ServerOptions::" + std::string(small) + " (" + std::to_string(bytes) +
                                                 " bytes) is less than " + std::string(large) + " (" +
                                                 std::to_string(most) + " bytes): raise the one, or lower the other");
  };
  const auto out_of_range = [](std::string_view name, std::size_t is, std::string_view least) {
    return fail(ErrorCode::invalid_argument, "ServerOptions::" + std::string(name) + " (" + std::to_string(is) +
                                                 ") is less than " + std::string(least) + ": raise it");
  };
  if (options.message_bytes_max < wire::message_bytes_least) {
    return out_of_range("message_bytes_max", options.message_bytes_max,
                        std::to_string(wire::message_bytes_least) + " bytes, which a frame without a body takes");
  }
  if (options.calls_per_connection_max == 0) {
    return out_of_range("calls_per_connection_max", 0, "1, without which no client may call");
  }
  if (options.ping_interval <= Duration::zero()) {
    return fail(ErrorCode::invalid_argument, "ServerOptions::ping_interval (" +
                                                 std::to_string(options.ping_interval.count()) +
                                                 " ns) is not positive: raise it, or use `forever` to send no PING");
  }
  if (options.receive_rate_min != 0 && options.receive_window > Duration::zero() &&
      options.receive_window < receive_window_min) {
    return out_of_range("receive_window", static_cast<std::size_t>(options.receive_window.count()),
                        "1000000 ns, since all connections are looked at in each window");
  }
  if (options.stream_window_bytes == 0) {
    return out_of_range("stream_window_bytes", 0, "1 byte, without which no client may send a stream item");
  }
  const std::size_t share = options.receive_share_bytes_max;
  const std::size_t peer = options.receive_peer_bytes_max;
  if (options.receive_bytes_max < options.message_bytes_max) {
    return contradiction("receive_bytes_max", options.receive_bytes_max, "message_bytes_max",
                         options.message_bytes_max);
  }
  if (peer != 0) {
    const std::size_t least = std::max(share, options.message_bytes_max);
    if (peer < least) {
      return contradiction("receive_peer_bytes_max", peer,
                           share > options.message_bytes_max ? "receive_share_bytes_max" : "message_bytes_max", least);
    }
    if (options.receive_bytes_max < peer) {
      return contradiction("receive_bytes_max", options.receive_bytes_max, "receive_peer_bytes_max", peer);
    }
  }
  if (share == 0) return {};
  if (share < options.message_bytes_max) {
    return contradiction("receive_share_bytes_max", share, "message_bytes_max", options.message_bytes_max);
  }
  if (options.receive_bytes_max < share) {
    return contradiction("receive_bytes_max", options.receive_bytes_max, "receive_share_bytes_max", share);
  }
  return {};
}

detail::ReceiveBudget make_budget(const ServerOptions& options) noexcept {
  const std::size_t least = message_footprint(options.message_bytes_max);
  const std::size_t share =
      options.receive_share_bytes_max != 0 ? options.receive_share_bytes_max : options.receive_bytes_max / 4;
  const std::size_t peer =
      options.receive_peer_bytes_max != 0 ? options.receive_peer_bytes_max : options.receive_bytes_max / 2;
  return detail::ReceiveBudget(std::max(options.receive_bytes_max, least), std::max(share, least),
                               std::max({peer, share, least}));
}

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
  host_.counters.accepted.add(1);
  if (phase_ != Phase::serving) return;
  try {
    admit(std::move(stream));
  } catch (const std::exception& error) {
    // Memory is exhausted, or the poller accepts no more descriptors.
    host_.counters.refused.add(1);
    log_dropped(error);
  }
}

void ServerLoop::admit(std::unique_ptr<transport::Stream> stream) {
  auto handshake = std::make_unique<Handshake>(loop_, std::move(stream), loop_.after(shared_.options.handshake_timeout),
                                               static_cast<Handshake::Done&>(*this), &shared_.protocols);
  if (attempts_.size() >= shared_.options.handshakes_max && !evict_silent()) {
    return refuse(*handshake, "the server has handshakes_max (" + std::to_string(shared_.options.handshakes_max) +
                                  ") handshakes going on: try again later, or raise it");
  }
  attempts_.emplace_back().handshake = std::move(handshake);
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
                                 std::to_string(shared_.options.handshakes_max) + ") newer connections arrived");
  attempts_.erase(oldest);
  return true;
}

// Sends the reason. The caller destroys the handshake.
void ServerLoop::refuse(Handshake& handshake, std::string why) {
  host_.counters.refused.add(1);
  log_refusal("connection from " + handshake.stream().peer() + " refused: " + why);
  wire::Hello hello{.version_min = wire::version, .version_max = wire::version};
  hello.refusal = Error{ErrorCode::overloaded, ErrorScope::connection, Initiator::local, 0, std::move(why)};
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

std::optional<Error> ServerLoop::refusal(const wire::Hello& theirs) const {
  if (theirs.version_min > wire::version || theirs.version_max < wire::version) {
    return Error{ErrorCode::protocol_error, ErrorScope::connection, Initiator::local, 0,
                 "the server speaks version 1 of the protocol, the client " + std::to_string(theirs.version_min) +
                     " to " + std::to_string(theirs.version_max)};
  }
  if (theirs.message_bytes_max < wire::message_bytes_least) {
    return Error{ErrorCode::protocol_error, ErrorScope::connection, Initiator::peer, 0,
                 "invalid client HELLO: message_bytes_max is " + std::to_string(theirs.message_bytes_max) +
                     ", and the shortest message has " + std::to_string(wire::message_bytes_least) + " bytes"};
  }
  return refusal();
}

std::optional<Error> ServerLoop::refusal() const {
  if (shared_.connections.load(std::memory_order_relaxed) >= shared_.options.connections_max) {
    return Error{
        ErrorCode::overloaded, ErrorScope::connection, Initiator::local, 0,
        "the server has connections_max (" + std::to_string(shared_.options.connections_max) + ") connections already"};
  }
  if (phase_ != Phase::serving) {
    return Error{ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0, "the server is stopping"};
  }
  return std::nullopt;
}

void ServerLoop::on_hello(Handshake& handshake, Result<wire::Hello> hello) {
  guard(handshake, [&] { continue_handshake(find(handshake), std::move(hello)); });
}

// Performs a step of a handshake. An exception (memory is exhausted, or the poller accepts no more descriptors) costs
// only this connection.
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
    host_.counters.handshakes_failed.add(1);
    if (const Bytes first = attempt->handshake->unknown(); !first.empty()) {
      log_refusal("connection from " + attempt->handshake->stream().peer() + " refused: " + hello.error().text);
      return attempt->handshake->leave(unknown_answer(first));
    }
    loop_.log(LogLevel::info, "rpc",
              "connection from " + attempt->handshake->stream().peer() + " dropped: " + hello.error().text);
    attempts_.erase(attempt);
    return;
  }
  if (attempt->selector != nullptr) return on_answer(attempt, *hello);
  attempt->theirs = std::move(*hello);
  on_first_hello(attempt);
}

// ---- Other protocols ----

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
  if (const std::optional<Error> why = refusal()) {
    host_.counters.refused.add(1);
    log_refusal("connection from " + attempt->handshake->stream().peer() + " refused: " + why->text);
    return attempt->handshake->leave(protocol.refusal(*why));
  }
  begin_session(attempt, protocol.open(host_, attempt->handshake->release_stream(), first));
}

// ---- The library's own protocol ----

void ServerLoop::on_first_hello(ConnectionAttempts::iterator attempt) {
  const ServerOptions& options = shared_.options;
  wire::Hello& theirs = attempt->theirs;
  attempt->ours = {
      .version_min = wire::version,
      .version_max = wire::version,
      .checksum = options.checksum && theirs.checksum,
      .message_bytes_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.message_bytes_max, UINT32_MAX)),
      .calls_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.calls_per_connection_max, 65'536)),
      .stream_window_bytes = options.stream_window_bytes,
      .refusal = refusal(theirs)};
  if (attempt->ours.refusal) {
    attempt->handshake->send(attempt->ours);
    host_.counters.refused.add(1);
    attempt->handshake->stream().finish();
    attempts_.erase(attempt);
    return;
  }
  transports_.attach();
  attempt->selector = std::make_unique<TransportSelector>(
      loop_, transports_, std::move(theirs.offers), attempt->handshake->stream().local(),
      message_limits(theirs.message_bytes_max, options.message_bytes_max));
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
  auto connection = std::make_unique<transport::FramedConnection>(
      loop_, attempt->handshake->release_stream(),
      transport::FramedOptions{.message_limit = wire::MessageLimit(shared_.options.message_bytes_max)});
  connection->send_preface(wire::encode_hello(attempt->ours));
  open_session(attempt, std::move(connection));
}

void ServerLoop::on_answer(ConnectionAttempts::iterator attempt, const wire::Hello& answer) {
  if (answer.unanswered) return on_connected(attempt, *answer.unanswered);
  if (!answer.answer) return on_connected(attempt, "the client did not answer the selection of this transport");
  attempt->selector->connect(*answer.answer, [this, attempt](const Result<void>& connected) {
    guard(*attempt->handshake,
          [&] { on_connected(attempt, connected ? std::nullopt : std::optional(connected.error().text)); });
  });
}

void ServerLoop::on_connected(ConnectionAttempts::iterator attempt, std::optional<std::string> failure) {
  TransportSelector& selector = *attempt->selector;
  if (failure) {
    loop_.log(LogLevel::info, "rpc",
              std::string(selector.transport()) + " does not carry the connection of " +
                  attempt->handshake->stream().peer() + ": " + *failure);
    selector.failed(std::move(*failure));
    return select(attempt);
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
  open_session(attempt, attempt->selector->pending()->open(attempt->handshake->release_stream()));
}

void ServerLoop::open_session(ConnectionAttempts::iterator attempt, std::unique_ptr<transport::Connection> connection) {
  const ServerOptions& options = shared_.options;
  const wire::Hello& theirs = attempt->theirs;
  const wire::Hello& ours = attempt->ours;
  const SessionSettings settings{
      .checksum = ours.checksum,
      .send_bytes_max = message_limits(theirs.message_bytes_max, options.message_bytes_max).send_bytes_max,
      .calls_max = ours.calls_max,
      .peer_window_bytes = theirs.stream_window_bytes,
      .own_window_bytes = options.stream_window_bytes,
      .backlog_bytes_max = options.send_backlog_bytes_max,
      .ping_interval = options.ping_interval,
      .decode_limits = options.decode_limits,
      .budget = &host_.budget,
      .peer = host_.receive_peers.find(connection->peer())};
  host_.counters.transports_declined.add(static_cast<std::int64_t>(attempt->selector->failures()));
  begin_session(attempt, std::make_unique<ServerSession>(host_, std::move(connection), settings));
}

void ServerLoop::begin_session(ConnectionAttempts::iterator attempt, std::unique_ptr<PortSession> made) {
  struct End final : detail::Posted {
    End(ServerLoop& of, PortSession& ended) : loop(of), alive(of.alive_), session(ended) {}
    void run() override {
      if (!alive.expired()) loop.remove(session);
    }
    ServerLoop& loop;
    const std::weak_ptr<char> alive;
    PortSession& session;
  };
  PortSession& session = *made;
  auto end = std::make_unique<End>(*this, session);
  sessions_.push_back(std::move(made));
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
  const ServerOptions& options = shared_.options;
  if (options.receive_rate_min == 0 || options.receive_window <= Duration::zero() ||
      options.receive_window == forever) {
    return;
  }
  sweep_.due = loop_.after(options.receive_window);
  sweep_.start(loop_, sweep_.due);
}

// If the loop itself did not run for a while, data that arrived meanwhile has not been received: a new window begins.
void ServerLoop::sweep() {
  const ServerOptions& options = shared_.options;
  const bool late = loop_.now() - sweep_.due > options.receive_window / 8;
  const auto window_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(options.receive_window).count());
  const std::uint64_t rate =
      std::min<std::uint64_t>(options.receive_rate_min, UINT64_MAX / std::max<std::uint64_t>(window_ms, 1));
  const std::uint64_t bytes = late ? 0 : std::max<std::uint64_t>(1, rate * window_ms / 1000);
  for (const auto& session : sessions_) session->end_if_slow(bytes);
  if (!sessions_.empty()) start_sweep();
}

void ServerLoop::remove(PortSession& session) {
  sessions_.remove_if([&](const auto& one) { return one.get() == &session; });
  shared_.connections.fetch_sub(1, std::memory_order_relaxed);
  if (phase_ != Phase::serving) continue_shut_down(false);
}

// ---- Background work ----

void ServerLoop::spawn(std::unique_ptr<detail::BackgroundWork> work) {
  loop_.post([this, alive = std::weak_ptr<char>(alive_), held = std::move(work)]() mutable {
    if (!alive.expired() && phase_ == Phase::serving) begin_background(std::move(held));
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
      auto task = held->begin(background);
      co_await std::move(task);
    } catch (...) {
      thrown = "background work threw " + detail::exception_text();
    }
  }
  if (!thrown.empty()) loop_.log(LogLevel::error, "rpc", thrown);
  if (phase_ != Phase::serving) continue_shut_down(false);
}

// ---- Stopping ----

Task<void> ServerLoop::shut_down(Duration grace) {
  begin_shut_down(grace, nullptr);
  while (phase_ != Phase::stopped) {
    auto changed = changed_.wait();
    co_await changed;
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
  // Copied, and done last, because a stop callback may run any code.
  std::stop_source stopping = host_.stopping;
  stopping.request_stop();
  continue_shut_down(false);
}

// `due` is true when the timer calls. Only then calls are cancelled and ended, since a handler may have requested the
// stop.
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
