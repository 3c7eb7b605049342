#include "block/nbd/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "block/nbd/protocol.h"
#include "hawser/log.h"

namespace hawser::block::nbd {
namespace {

// A host that answers nothing is found within two minutes, also while a reply waits for its acknowledgement.
constexpr unsigned unanswered_max_ms = 120'000;
constexpr int keepalive_idle_s = 60;
constexpr int keepalive_interval_s = 10;
constexpr int keepalive_probes = 6;

// Options of a TCP socket. Other sockets refuse them, which does not matter.
void set_options(int descriptor) noexcept {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_max_ms, sizeof(unanswered_max_ms));
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &keepalive_idle_s, sizeof(keepalive_idle_s));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &keepalive_interval_s, sizeof(keepalive_interval_s));
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &keepalive_probes, sizeof(keepalive_probes));
}

// A connection may have been reset before it was accepted.
bool is_connected(int socket) noexcept {
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0 || errno != ENOTCONN;
}

// A session in the list of all.
class ListedSession {
 public:
  ListedSession(std::list<NbdSession*>& all, NbdSession& session)
      : all_(all), place_(all.insert(all.end(), &session)) {}
  ListedSession(const ListedSession&) = delete;
  ListedSession& operator=(const ListedSession&) = delete;
  ~ListedSession() { all_.erase(place_); }

 private:
  std::list<NbdSession*>& all_;
  const std::list<NbdSession*>::iterator place_;
};

bool connection_waits(int listening) noexcept {
  pollfd state{.fd = listening, .events = POLLIN, .revents = 0};
  return ::poll(&state, 1, 0) > 0;
}

NbdLimits corrected(NbdLimits limits) noexcept {
  limits.session.bytes_in_flight_max = std::max<std::size_t>(limits.session.bytes_in_flight_max, payload_bytes_max);
  limits.memory_bytes_max = std::max<std::size_t>(limits.memory_bytes_max, payload_bytes_max);
  return limits;
}

}  // namespace

Acceptor::Acceptor(Loop& loop, NbdListening& listening, Exports& exports, const NbdLimits& limits,
                   std::shared_ptr<transport::ServerSecurity> security)
    : loop_(loop),
      listening_(listening),
      exports_(exports),
      limits_(corrected(limits)),
      security_(std::move(security)),
      check_interval_(
          std::clamp<Duration>(std::min({limits.memory_wait_max, limits.holder_silence_max, limits.places.idle_min}),
                               std::chrono::milliseconds(1), check_max)),
      memory_(memory_permits(limits_.memory_bytes_max)) {
  loop_.poller().watch(listening_.descriptor(), *this);
  check_timer_.start(loop_, loop_.after(check_interval_));
}

Acceptor::~Acceptor() {
  if (!stopping_) loop_.poller().unwatch(listening_.descriptor(), *this);
}

void Acceptor::accept() {
  while (!stopping_) {
    if (sessions_.size() >= limits_.connections_max) return free_place();
    full_logged_ = false;
    SocketDescriptor socket(::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      if (!is_connected(socket.get())) continue;
      set_options(socket.get());
      connections_.spawn(serve(std::move(socket)));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      // Such as of a lack of descriptors: the connection waits, and raises no further edge.
      retry_.start(loop_, loop_.after(accept_retry));
      return;
    }
  }
}

void Acceptor::accept_again() noexcept {
  try {
    accept();
  } catch (const std::bad_alloc&) {
    retry_.start(loop_, loop_.after(accept_retry));
  }
}

Task<void> Acceptor::serve(SocketDescriptor socket) {
  try {
    NbdPeer peer = NbdPeer::of(socket.get());
    Result<SocketStream> stream = SocketStream::adopt(loop_, socket.release());
    if (stream) {
      NbdSession session(loop_, std::move(*stream), std::move(peer), exports_, memory_, limits_.session, security_);
      const ListedSession listed(sessions_, session);
      co_await session.run();
    } else {
      loop_.log(LogLevel::warning, "nbd", "a connection was closed: " + stream.error().text);
    }
  } catch (const std::bad_alloc&) {
    loop_.log(LogLevel::warning, "nbd", "a connection was closed: the machine has no memory for it");
  }
  // A place is free for one that waits. Not accepted here: this task still counts.
  if (!stopping_) retry_.start(loop_, loop_.now());
}

void Acceptor::check() noexcept {
  check_timer_.start(loop_, loop_.after(check_interval_));
  for (NbdSession* const session : sessions_) session->observe_pace(limits_.holder_bytes_min);
  try {
    for (NbdSession* const session : std::vector(sessions_.begin(), sessions_.end())) session->check_rights();
    check_memory();
    if (!stopping_ && sessions_.size() >= limits_.connections_max) free_place();
  } catch (const std::bad_alloc&) {
    // The next check tries again.
  }
}

// Ends one connection if all places are used and another connection waits. accept() follows when it has ended.
void Acceptor::free_place() {
  if (!connection_waits(listening_.descriptor())) return;
  for (NbdSession* const session : sessions_) session->observe_pace(limits_.holder_bytes_min);
  std::vector<NbdSession*> sessions(sessions_.begin(), sessions_.end());
  if (std::ranges::any_of(sessions, &NbdSession::ended)) return;  // It frees its place soon.
  std::vector<ConnectionPlace> places;
  for (const NbdSession* const session : sessions) {
    places.push_back({.client = session->peer().client(), .idle = session->idle(loop_.now())});
  }
  const std::optional<std::size_t> ended = place_to_free(places, limits_.places);
  if (ended) {
    loop_.log(LogLevel::warning, "nbd",
              "an idle connection of " + sessions[*ended]->peer().client() +
                  " was ended: all places are used, it has the most, and another connection waits");
    sessions[*ended]->abort();
  } else if (!std::exchange(full_logged_, true)) {
    loop_.log(LogLevel::warning, "nbd",
              "a connection waits: all " + std::to_string(limits_.connections_max) +
                  " places are used; permit more connections (--nbd-connections of serve, --connections of nbd)");
  }
}

// Ends connections if the request that has waited the longest for memory has waited for too long.
void Acceptor::check_memory() {
  const NbdSession* first = nullptr;
  for (const NbdSession* const session : sessions_) {
    if (session->waiting() && (first == nullptr || session->waiting()->since < first->waiting()->since)) {
      first = session;
    }
  }
  if (first == nullptr || loop_.now() - first->waiting()->since < limits_.memory_wait_max) return;
  end_holders(first->waiting()->bytes);
}

void Acceptor::end_holders(std::size_t wanted) {
  std::vector<NbdMemoryHolder> holders;
  for (const NbdSession* const session : sessions_) holders.push_back(session->holder(limits_.holder_silence_max));
  const std::vector<NbdSession*> sessions(sessions_.begin(), sessions_.end());
  for (const std::size_t number : holders_to_end(holders, limits_.memory_bytes_max, wanted)) {
    const NbdMemoryHolder& holder = holders[number];
    loop_.log(LogLevel::warning, "nbd",
              "a connection was ended: its client made " + std::to_string(holder.held_bytes) +
                  " bytes of memory wait, for which others waited, and had " + std::to_string(holder.missing_bytes) +
                  " bytes to send or to receive");
    sessions[number]->abort();
  }
}

Task<void> Acceptor::stop(Duration grace) {
  stopping_ = true;
  loop_.poller().unwatch(listening_.descriptor(), *this);
  retry_.stop();
  for (NbdSession* const session : sessions_) session->stop();
  const Time end = loop_.after(grace);
  while (!connections_.empty() && loop_.now() < end) co_await loop_.sleep(std::chrono::milliseconds(1));
  if (!connections_.empty()) {
    for (NbdSession* const session : sessions_) session->abort();
    exports_.close();
  }
  co_await connections_.join();
  check_timer_.stop();
}

}  // namespace hawser::block::nbd
