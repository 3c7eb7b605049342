#include "rpc/server_loop.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "transport/framed_connection.h"

namespace hawser::rpc {
namespace {

// After calls have been told to stop, and again for connections to close: how long a server that stops waits.
constexpr Duration last_wait = std::chrono::seconds(1);

}  // namespace

ServerLoop::~ServerLoop() {
  // Calls first: their coroutines use the sessions.
  for (const auto& session : sessions_) session->destroy_calls();
  // Offloaded functions at work can't be ended; their results come by the loop's mailbox.
  for (const auto& session : sessions_) {
    while (session->active_calls() != 0) {
      loop_.run_posted();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  shared_.connections.fetch_sub(sessions_.size(), std::memory_order_relaxed);
}

void ServerLoop::adopt(std::unique_ptr<transport::Stream> stream) {
  session_shared_.counters.accepted.add(1);
  if (stopping_) return;
  if (arrivals_.size() >= shared_.options.handshakes_max) {
    session_shared_.counters.refused.add(1);
    loop_.log(LogLevel::warning, "rpc", "connection refused: handshakes_max handshakes are going on");
    return;
  }
  arrivals_.push_back({.handshake = std::make_unique<Handshake>(loop_, std::move(stream),
                                                                loop_.now() + shared_.options.handshake_timeout,
                                                                static_cast<Handshake::Done&>(*this))});
}

ServerLoop::Arrivals::iterator ServerLoop::find(Handshake& handshake) {
  return std::find_if(arrivals_.begin(), arrivals_.end(),
                      [&](const Arrival& one) { return one.handshake.get() == &handshake; });
}

std::optional<Error> ServerLoop::refusal(const wire::Hello& theirs) const {
  if (theirs.version_least > wire::version || theirs.version_most < wire::version) {
    return Error{ErrorCode::protocol_error, ErrorScope::connection, Initiator::local, 0,
                 "the server speaks version 1 of the protocol, the client " + std::to_string(theirs.version_least) +
                     " to " + std::to_string(theirs.version_most)};
  }
  constexpr std::size_t least = transport::FramedConnection::prefix_bytes + wire::header_bytes;
  if (theirs.message_bytes_max < least) {
    return Error{ErrorCode::protocol_error, ErrorScope::connection, Initiator::peer, 0,
                 "the client's message_bytes_max (" + std::to_string(theirs.message_bytes_max) +
                     ") has no room for a frame: allow " + std::to_string(least) + " bytes or more"};
  }
  if (shared_.connections.load(std::memory_order_relaxed) >= shared_.options.connections_max) {
    return Error{
        ErrorCode::overloaded, ErrorScope::connection, Initiator::local, 0,
        "the server has connections_max (" + std::to_string(shared_.options.connections_max) + ") connections already"};
  }
  if (stopping_) {
    return Error{ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0, "the server is stopping"};
  }
  return std::nullopt;
}

void ServerLoop::on_hello(Handshake& handshake, Result<wire::Hello> hello) {
  const auto arrival = find(handshake);
  if (!hello) {
    session_shared_.counters.handshakes_failed.add(1);
    loop_.log(LogLevel::info, "rpc",
              "connection from " + handshake.stream().peer() + " dropped: " + hello.error().text);
    arrivals_.erase(arrival);
    return;
  }
  if (arrival->proposals != nullptr) return on_answer(arrival, *hello);
  arrival->theirs = std::move(*hello);
  on_first_hello(arrival);
}

void ServerLoop::on_first_hello(Arrivals::iterator arrival) {
  const ServerOptions& options = shared_.options;
  wire::Hello& theirs = arrival->theirs;
  arrival->ours = {
      .version_least = wire::version,
      .version_most = wire::version,
      .checksum = options.checksum && theirs.checksum,
      .message_bytes_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.message_bytes_max, UINT32_MAX)),
      .calls_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.calls_per_connection_max, 65'536)),
      .stream_window_bytes = options.stream_window_bytes,
      .refusal = refusal(theirs)};
  if (arrival->ours.refusal) {
    arrival->handshake->send(arrival->ours);
    session_shared_.counters.refused.add(1);
    arrival->handshake->stream().finish();
    arrivals_.erase(arrival);
    return;
  }
  paths_.attach();
  arrival->proposals =
      std::make_unique<Proposals>(paths_, std::move(theirs.offers), arrival->handshake->stream().local(),
                                  path_limits(theirs.message_bytes_max, options.message_bytes_max));
  propose(arrival);
}

// Sends our hello with the next proposal; when none is left, the stream carries the messages.
void ServerLoop::propose(Arrivals::iterator arrival) {
  arrival->ours.declined.clear();
  arrival->ours.proposal.reset();
  if (arrival->proposals->propose(arrival->ours)) {
    arrival->handshake->send(arrival->ours);
    arrival->handshake->expect_next();
    return;
  }
  auto connection = std::make_unique<transport::FramedConnection>(
      loop_, arrival->handshake->take_stream(),
      transport::FramedOptions{.message_bytes_max = shared_.options.message_bytes_max});
  connection->send_preface(wire::encode_hello(arrival->ours));
  open_session(arrival, std::move(connection));
}

void ServerLoop::on_answer(Arrivals::iterator arrival, const wire::Hello& answer) {
  Proposals& proposals = *arrival->proposals;
  std::optional<std::string> failure = answer.unanswered;
  if (!failure) {
    const Result<void> connected =
        answer.answer ? proposals.connect(*answer.answer)
                      : fail(ErrorCode::protocol_error, "the client did not answer the proposal of this path");
    if (!connected) failure = connected.error().text;
  }
  if (failure) {
    loop_.log(LogLevel::info, "rpc",
              std::string(proposals.path()) + " does not carry the connection of " +
                  arrival->handshake->stream().peer() + ": " + *failure);
    proposals.failed(std::move(*failure));
    return propose(arrival);
  }
  arrival->ours.declined.clear();
  arrival->ours.proposal.reset();
  arrival->ours.go = true;
  arrival->going = true;
  arrival->handshake->send(arrival->ours);
  if (arrival->handshake->sent()) open_path(arrival);
}

void ServerLoop::on_sent(Handshake& handshake) {
  const auto arrival = find(handshake);
  if (arrival != arrivals_.end() && arrival->going) open_path(arrival);
}

void ServerLoop::open_path(Arrivals::iterator arrival) {
  open_session(arrival, arrival->proposals->half()->open(arrival->handshake->take_stream()));
}

void ServerLoop::open_session(Arrivals::iterator arrival, std::unique_ptr<transport::Connection> connection) {
  const ServerOptions& options = shared_.options;
  const wire::Hello& theirs = arrival->theirs;
  const wire::Hello& ours = arrival->ours;
  const SessionSettings settings{
      .checksum = ours.checksum,
      .send_bytes_max = path_limits(theirs.message_bytes_max, options.message_bytes_max).send_bytes_max,
      .calls_max = ours.calls_max,
      .peer_window_bytes = theirs.stream_window_bytes,
      .own_window_bytes = options.stream_window_bytes,
      .backlog_bytes_max = options.send_backlog_bytes_max,
      .ping_interval = options.ping_interval,
      .decode_limits = options.decode_limits};
  session_shared_.counters.paths_declined.add(static_cast<std::int64_t>(arrival->proposals->failures()));
  arrivals_.erase(arrival);
  shared_.connections.fetch_add(1, std::memory_order_relaxed);
  sessions_.push_back(std::make_unique<ServerSession>(loop_, std::move(connection), settings, session_shared_,
                                                      static_cast<ServerSession::Owner&>(*this)));
  sessions_.back()->start();
}

void ServerLoop::on_session_idle(ServerSession& session) {
  loop_.post([this, &session, alive = std::weak_ptr<char>(alive_)] {
    if (alive.expired()) return;
    sessions_.remove_if([&](const auto& one) { return one.get() == &session; });
    shared_.connections.fetch_sub(1, std::memory_order_relaxed);
    changed_.notify_all();
  });
}

// True if no session is left by then.
Task<bool> ServerLoop::wait_empty(Time until) {
  struct Alarm : Timer {
    explicit Alarm(exec::Signal& signal) noexcept : Timer(&Alarm::fire), changed(signal) {}
    static void fire(Timer& timer) noexcept { static_cast<Alarm&>(timer).changed.notify_all(); }
    exec::Signal& changed;
  };
  Alarm alarm(changed_);
  alarm.start(loop_, until);
  while (!sessions_.empty() && loop_.now() < until) {
    auto changed = changed_.wait();
    co_await changed;
  }
  co_return sessions_.empty();
}

Task<void> ServerLoop::shut_down(Duration grace) {
  stopping_ = true;
  arrivals_.clear();
  for (const auto& session : sessions_) session->go_away();
  auto finished = wait_empty(loop_.now() + grace);
  if (co_await std::move(finished)) co_return;
  const Error why{ErrorCode::cancelled, ErrorScope::call, Initiator::local, 0, "the server has stopped"};
  for (const auto& session : sessions_) session->cancel_calls(why);
  auto cancelled = wait_empty(loop_.now() + std::min(grace, last_wait));
  if (co_await std::move(cancelled)) co_return;
  for (const auto& session : sessions_) {
    session->abort(why);
    session->destroy_calls();
  }
  // Left are offloaded functions at work: nothing can end them.
  auto gone = wait_empty(Time::max());
  co_await std::move(gone);
}

}  // namespace hawser::rpc
