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
  if (handshakes_.size() >= shared_.options.handshakes_max) {
    session_shared_.counters.refused.add(1);
    loop_.log(LogLevel::warning, "rpc", "connection refused: handshakes_max handshakes are going on");
    return;
  }
  handshakes_.push_back(std::make_unique<Handshake>(
      loop_, std::move(stream), loop_.now() + shared_.options.handshake_timeout, static_cast<Handshake::Done&>(*this)));
}

std::unique_ptr<Handshake> ServerLoop::remove(Handshake& handshake) {
  const auto at =
      std::find_if(handshakes_.begin(), handshakes_.end(), [&](const auto& one) { return one.get() == &handshake; });
  std::unique_ptr<Handshake> removed = std::move(*at);
  handshakes_.erase(at);
  return removed;
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

void ServerLoop::on_hello(Handshake& ended, Result<wire::Hello> hello) {
  const std::unique_ptr<Handshake> handshake = remove(ended);
  if (!hello) {
    session_shared_.counters.handshakes_failed.add(1);
    loop_.log(LogLevel::info, "rpc",
              "connection from " + handshake->stream().peer() + " dropped: " + hello.error().text);
    return;
  }
  const ServerOptions& options = shared_.options;
  wire::Hello ours{
      .version_least = wire::version,
      .version_most = wire::version,
      .checksum = options.checksum && hello->checksum,
      .message_bytes_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.message_bytes_max, UINT32_MAX)),
      .calls_max = static_cast<std::uint32_t>(std::min<std::size_t>(options.calls_per_connection_max, 65'536)),
      .stream_window_bytes = options.stream_window_bytes,
      .refusal = refusal(*hello)};
  if (ours.refusal) {
    handshake->send(ours);
    session_shared_.counters.refused.add(1);
    handshake->stream().finish();
    return;
  }
  open_session(handshake->take_stream(), *hello, ours);
}

void ServerLoop::open_session(std::unique_ptr<transport::Stream> stream, const wire::Hello& theirs,
                              const wire::Hello& ours) {
  const ServerOptions& options = shared_.options;
  const transport::FramedOptions framed{.message_bytes_max = options.message_bytes_max};
  const SessionSettings settings{
      .checksum = ours.checksum,
      .send_bytes_max = std::min<std::size_t>(theirs.message_bytes_max, options.message_bytes_max) -
                        transport::FramedConnection::prefix_bytes,
      .calls_max = ours.calls_max,
      .peer_window_bytes = theirs.stream_window_bytes,
      .own_window_bytes = options.stream_window_bytes,
      .backlog_bytes_max = options.send_backlog_bytes_max,
      .ping_interval = options.ping_interval};
  auto connection = std::make_unique<transport::FramedConnection>(loop_, std::move(stream), framed);
  connection->send_preface(wire::encode_hello(ours));
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
  handshakes_.clear();
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
