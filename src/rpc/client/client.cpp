#include "hawser/client.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "rpc/client/client_state.h"

namespace hawser {
namespace {

Error not_connected() {
  return {ErrorCode::not_sent, ErrorScope::connection, Initiator::local, 0,
          "not connected: co_await connect(address) first"};
}

}  // namespace

Client::Client(Loop* loop, std::shared_ptr<transport::Network> network, ClientOptions options)
    : state_(std::make_unique<State>(loop, std::move(network), std::move(options))), link_(&state_->link) {
  state_->link.reason = not_connected();
}

Client::Client(Loop& loop, std::shared_ptr<transport::Network> network, ClientOptions options)
    : Client(&loop, std::move(network), std::move(options)) {}

Client::~Client() = default;

Task<Result<void>> Client::connect(std::string address) { return state_->connect(std::move(address)); }
void Client::close() { state_->close("the client was closed"); }
std::size_t Client::calls_in_flight() const noexcept {
  std::size_t sum = state_->lobby ? state_->lobby->size() : 0;
  for (const auto& session : state_->finishing) sum += session->calls_in_flight();
  return sum + (state_->session ? state_->session->calls_in_flight() : 0);
}
Time Client::last_used() const noexcept { return state_->session ? state_->session->last_used() : Time{}; }
bool Client::going_away() const noexcept { return state_->session && state_->session->going_away(); }
std::string_view Client::transport() const noexcept {
  return state_->session ? state_->session->connection().transport() : std::string_view();
}
const std::vector<TransportNotTaken>& Client::not_taken() const noexcept { return state_->not_taken; }
std::uint64_t Client::moves() const noexcept { return state_->moved; }
void Client::enable(TransportSpec transport) {
  state_->options.transports.enable(std::move(transport));
  state_->paths.reset();
}
std::vector<std::shared_ptr<transport::DataPath>> Client::data_paths() const {
  return state_->network->data_paths(state_->options.transports);
}
const std::string& Client::address() const noexcept { return state_->address; }

Task<Result<Duration>> Client::ping() {
  const std::shared_ptr<rpc::ClientSession> session = state_->session;
  if (!session) co_return std::unexpected(not_connected());
  auto asked = session->ping();
  co_return co_await std::move(asked);
}

// ---- State ----

Client::State::~State() {
  scope.clear();
  close("the client was destroyed");
  if (uses_loop) loop->remove_user(*this);
}

Result<void> Client::State::take_loop() {
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
  if (!std::exchange(uses_loop, true)) loop->add_user(*this);
  return {};
}

// As when sync_wait() returns, or a Loop is destroyed before the clients that use it.
void Client::State::on_loop_end() noexcept {
  // Held until the end of this function: nothing that is posted runs any more.
  const std::list<std::shared_ptr<rpc::ClientSession>> old = finishing;
  const std::shared_ptr<rpc::ClientSession> last = session;
  loop_ending = true;
  scope.clear();
  close("the loop has ended");
  link.port = nullptr;
  link.reason = {
      ErrorCode::not_sent, ErrorScope::connection, Initiator::local, 0,
      "not connected any more: the loop that this client was connected on has ended, as the one of sync_wait() "
      "does when that returns: connect and call within one sync_wait(), or use a Loop that lives longer"};
  paths.reset();
  attempted.reset();
  loop = nullptr;
  uses_loop = false;
  loop_ending = false;
}

// Destroyed by the loop, since this may come from within the session.
void Client::State::release_later(std::shared_ptr<rpc::ClientSession> gone) {
  if (!loop_ending) loop->post([held = std::move(gone)] {});
}

Task<Result<void>> Client::State::connect(std::string to) {
  if (Result<void> taken = take_loop(); !taken) co_return taken;
  if ((attempt_at_hand || session) && to != address) {
    co_return fail(ErrorCode::invalid_argument,
                   "this client is connected, or connecting, to " + address + ": close() it first, or use another");
  }
  if (session) co_return Result<void>{};
  if (!attempted) attempted = std::make_shared<exec::Signal>(*loop);
  std::shared_ptr<Attempt> shared = attempt_at_hand;
  if (!shared) {
    shared = attempt_at_hand = std::make_shared<Attempt>();
    address = std::move(to);
    scope.spawn(attempt(shared));
  }
  const std::shared_ptr<exec::Signal> signal = attempted;  // The client may be destroyed meanwhile.
  while (!shared->outcome) {
    auto finished = signal->wait();
    co_await finished;
  }
  co_return *shared->outcome;
}

// Also moves a connection that has lost its path: what waits in the lobby is sent or failed by it.
Task<void> Client::State::attempt(std::shared_ptr<Attempt> own) {
  auto opening = open_session(address);
  Result<Opened> opened = co_await std::move(opening);
  if (own->outcome) {  // Closed meanwhile.
    if (opened) opened->session->close();
    co_return;
  }
  // It may have ended between its first answer and now; then nobody would learn of its end.
  if (opened && opened->session->closed()) {
    opened = fail(ErrorCode::unavailable, "the connection ended as soon as it was made: its peer has closed it",
                  ErrorScope::connection, Initiator::peer);
  }
  const std::shared_ptr<rpc::Lobby> waiting = std::exchange(lobby, nullptr);
  const TransportNotTaken left = std::exchange(lost, {});
  if (opened) {
    // It could not be had again, so it was to blame.
    if (!left.transport.empty() && opened->path != left.transport) {
      health.broke(left.transport, left.reason, loop->now(), options.transports);
    }
    use(std::move(*opened));
    log_not_taken();
    own->outcome.emplace();
    if (waiting) waiting->send_all(*session);
  } else {
    if (waiting) {
      not_connected_any_more(opened.error());
      waiting->fail_all(opened.error());
    }
    own->outcome.emplace(std::unexpected(std::move(opened.error())));
  }
  attempt_at_hand.reset();
  attempted->notify_all();
}

void Client::State::use(Opened opened) {
  session = std::move(opened.session);
  path = std::move(opened.path);
  link.port = session.get();
  health.carries(path, loop->now());
  if (const Time when = health.next_try(); when != Time::max()) retry.start(*loop, when);
}

// Attempts run on their own, where an exception would end the process: no memory, or the poller takes no more descriptors.
Task<Result<Client::State::Opened>> Client::State::open_session(std::string to) {
  auto opening = open_best(to);
  try {
    co_return co_await std::move(opening);
  } catch (const std::exception& error) {
    co_return fail(ErrorCode::unavailable, "cannot connect to " + to + ": " + error.what(), ErrorScope::connection);
  }
}

// A session over the best transport that both sides have and that works: what was agreed on is tried by a ping, and
// left alone if that fails.
Task<Result<Client::State::Opened>> Client::State::open_best(std::string to) {
  const Time deadline = loop->after(options.connect_timeout);
  if (!paths) {
    Result<rpc::TransportList> chosen = rpc::choose_transports(options.transports, *network);
    if (!chosen) co_return std::unexpected(std::move(chosen.error()));
    paths = std::make_shared<rpc::Paths>(*loop, std::move(*chosen), options.transports.retry_min);
  }
  const std::shared_ptr<rpc::Paths> own_paths = paths;  // Another transport may be enabled meanwhile.
  own_paths->attach();
  const std::string& demand = options.transports.demand;
  for (;;) {
    auto dialing = rpc::dial(*loop, *network, to, options, *own_paths, health.avoided(loop->now()), deadline);
    Result<rpc::Dialed> dialed = co_await std::move(dialing);
    if (!dialed) co_return std::unexpected(std::move(dialed.error()));
    not_taken = std::move(dialed->not_taken);
    if (!demand.empty() && demand != "stream" && demand != dialed->path) {
      std::string reason = "this build or machine does not have it, or it is not enabled";
      for (const TransportNotTaken& one : not_taken) {
        if (one.transport == demand) reason = one.reason;
      }
      co_return fail(ErrorCode::unavailable, "the options demand " + demand + ", which can't be had: " + reason,
                     ErrorScope::connection);
    }
    const rpc::SessionSettings settings{
        .checksum = dialed->hello.checksum,
        .send_bytes_max = rpc::path_limits(dialed->hello.message_bytes_max, options.message_bytes_max).send_bytes_max,
        .calls_max = std::min<std::size_t>(options.calls_in_flight_max, dialed->hello.calls_max),
        .peer_window_bytes = dialed->hello.stream_window_bytes,
        .own_window_bytes = options.stream_window_bytes,
        .backlog_bytes_max = options.send_backlog_bytes_max,
        .ping_interval = options.ping_interval,
        .decode_limits = options.decode_limits,
        .path = !dialed->path.empty()};
    auto made =
        std::make_shared<rpc::ClientSession>(*loop, std::move(dialed->connection), settings, options.call_timeout,
                                             static_cast<rpc::ClientSession::Owner&>(*this));
    made->start();
    if (dialed->path.empty()) co_return Opened{std::move(made), {}};
    // Part of what is left, so that there is time to try something else.
    auto probing = probe(*made, 0, (deadline - loop->now()) / 2);
    Result<void> works = co_await std::move(probing);
    bool shorter = false;
    if (works) {
      const std::size_t probe_bytes = dialed->end->toward(dialed->local).probe_bytes();
      if (probe_bytes != 0) {
        auto filling = probe(*made, probe_bytes, (deadline - loop->now()) / 2);
        works = co_await std::move(filling);
      }
      if (works) co_return Opened{std::move(made), std::move(dialed->path)};
      // What is between the peers does not carry packets of that size.
      shorter = dialed->end->toward(dialed->local).use_shorter_packets(dialed->parameters);
    }
    made->close();
    if (shorter && loop->now() < deadline) {
      loop->log(
          LogLevel::warning, "rpc",
          dialed->path + " to " + to +
              " carries short messages and no long ones: trying shorter packets (check the MTU of every switch and "
              "interface on the way)");
      continue;
    }
    if (loop->now() >= deadline) {
      co_return fail(ErrorCode::unavailable, dialed->path + " was agreed on but carries nothing: " + works.error().text,
                     ErrorScope::connection);
    }
    health.broke(dialed->path, works.error().text, loop->now(), options.transports);
  }
}

Task<Result<void>> Client::State::probe(rpc::ClientSession& probed, std::size_t body_bytes, Duration time) {
  struct Alarm : Timer {
    explicit Alarm(rpc::ClientSession& on) noexcept : Timer(&Alarm::fire), session(on) {}
    static void fire(Timer& timer) noexcept { static_cast<Alarm&>(timer).session.close(); }
    rpc::ClientSession& session;
  };
  Alarm alarm(probed);
  alarm.start(*loop, loop->after(time));
  auto asked = probed.ping(body_bytes);
  const Result<Duration> answered = co_await std::move(asked);
  if (!answered) {
    co_return fail(ErrorCode::unavailable,
                   body_bytes == 0
                       ? "a first ping over it was not answered"
                       : "a first ping of " + std::to_string(body_bytes) + " bytes over it was not answered",
                   ErrorScope::transport);
  }
  co_return Result<void>{};
}

// A path that broke may be tried again: if it works, new calls go there, and the session at hand ends with its last call.
Task<void> Client::State::go_back() {
  if (!session || attempt_at_hand || session->going_away()) co_return;
  const std::shared_ptr<rpc::ClientSession> before = session;
  auto opening = open_session(address);
  Result<Opened> opened = co_await std::move(opening);
  const Time now = loop->now();
  if (opened && !opened->session->closed() && session == before && opened->path != path && !opened->path.empty()) {
    finishing.push_back(before);
    use(std::move(*opened));
    ++moved;
    before->finish();
    co_return;
  }
  if (opened) opened->session->close();
  if (session != before) co_return;  // Closed meanwhile, or lost and connected anew.
  health.tried_in_vain(now, options.transports);
  retry.start(*loop, health.next_try());
}

void Client::State::log_not_taken() {
  if (std::exchange(not_taken_logged, true)) return;
  for (const TransportNotTaken& one : not_taken) {
    loop->log(LogLevel::info, "rpc",
              one.transport + " does not carry the connection to " + address + ": " + one.reason);
  }
}

void Client::State::close(std::string_view why) {
  retry.stop();
  for (const auto& old : std::list(finishing)) old->close();
  if (session) session->close();
  if (!attempt_at_hand) return;
  // Whoever waits for it learns now; what it still gets, it gives up.
  const Error reason{ErrorCode::unavailable, ErrorScope::connection, Initiator::local, 0, std::string(why)};
  std::exchange(attempt_at_hand, nullptr)->outcome.emplace(std::unexpected(reason));
  lost = {};
  if (const std::shared_ptr<rpc::Lobby> waiting = std::exchange(lobby, nullptr)) {
    not_connected_any_more(reason);
    waiting->fail_all(reason);
  }
  if (attempted) attempted->notify_all();
}

void Client::State::not_connected_any_more(const Error& reason) {
  link.port = nullptr;
  link.reason = reason;
  link.reason.text = "not connected any more: " + reason.text;
}

// ---- The end of a session ----

// Beside the stream, more can break than the peer: it is worth a try to reach it otherwise. If only the stream's end was
// seen, the path may not be to blame, since a peer whose half breaks ends the stream.
bool Client::State::moves(const Error& reason) const noexcept {
  if (path.empty() || !options.transports.demand.empty() || session->going_away()) return false;
  return reason.scope == ErrorScope::transport ||
         (reason.initiator == Initiator::peer && reason.code != ErrorCode::protocol_error);
}

bool Client::State::take_over(rpc::ClientSession& ended, detail::CallOperation& operation, bool unsent,
                              const Error& reason) {
  if (&ended != session.get() || !moves(reason)) return false;
  const detail::CallOperation::Request& request = operation.request();
  if (operation.stream() != nullptr || !request.arguments_last) return false;
  if (!unsent && (request.options == nullptr || !request.options->idempotent)) return false;
  if (!lobby) lobby = std::make_shared<rpc::Lobby>(*loop, options.calls_in_flight_max, options.call_timeout);
  lobby->keep(operation, unsent);
  return true;
}

void Client::State::on_session_end(rpc::ClientSession& ended, const Error& reason) {
  for (auto at = finishing.begin(); at != finishing.end(); ++at) {
    if (at->get() != &ended) continue;
    release_later(std::move(*at));
    finishing.erase(at);
    return;
  }
  if (&ended != session.get()) return;  // It was only being tried.
  retry.stop();
  const bool moving = moves(reason);
  release_later(std::move(session));
  if (!moving) return not_connected_any_more(reason);
  if (reason.scope == ErrorScope::transport) {
    health.broke(path, reason.text, loop->now(), options.transports);
  } else {
    lost = {path, reason.text};
  }
  loop->log(LogLevel::warning, "rpc", path + " broke, the connection to " + address + " is made anew: " + reason.text);
  path.clear();
  ++moved;
  if (!lobby) lobby = std::make_shared<rpc::Lobby>(*loop, options.calls_in_flight_max, options.call_timeout);
  link.port = lobby.get();
  attempt_at_hand = std::make_shared<Attempt>();
  scope.spawn(attempt(attempt_at_hand));
}

}  // namespace hawser
