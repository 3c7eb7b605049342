#include "block/nbd/acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "block/nbd/protocol.h"
#include "hawser/log.h"

namespace hawser::block::nbd {
namespace {

// Options of a TCP socket. Other sockets refuse them, which does not matter.
void set_options(int descriptor) noexcept {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

NbdLimits corrected(NbdLimits limits) noexcept {
  limits.session.bytes_in_flight_max = std::max<std::size_t>(limits.session.bytes_in_flight_max, payload_bytes_max);
  limits.memory_bytes_max = std::max<std::size_t>(limits.memory_bytes_max, payload_bytes_max);
  return limits;
}

}  // namespace

Acceptor::Acceptor(Loop& loop, NbdListening& listening, Exports& exports, const NbdLimits& limits)
    : loop_(loop),
      listening_(listening),
      exports_(exports),
      limits_(corrected(limits)),
      memory_(memory_permits(limits_.memory_bytes_max)) {
  loop_.poller().watch(listening_.descriptor(), *this);
  holder_timer_.start(loop_, loop_.after(memory_check));
}

Acceptor::~Acceptor() {
  if (!stopping_) loop_.poller().unwatch(listening_.descriptor(), *this);
}

void Acceptor::accept() {
  while (!stopping_ && sessions_.size() < limits_.connections_max) {
    SocketDescriptor socket(::accept4(listening_.descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
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

Task<void> Acceptor::serve(SocketDescriptor socket) {
  try {
    NbdSession session(loop_, std::move(socket), exports_, memory_, limits_.session);
    sessions_.push_back(&session);
    co_await session.run();
    std::erase(sessions_, &session);
  } catch (const std::bad_alloc&) {
    loop_.log(LogLevel::warning, "nbd", "a connection was closed: the machine has no memory for it");
  } catch (const std::system_error& error) {
    loop_.log(LogLevel::warning, "nbd", std::string("a connection was closed: ") + error.what());
  }
  // A place is free for one that waits. Not accepted here: this task still counts.
  if (!stopping_) retry_.start(loop_, loop_.now());
}

// Ends the connection whose client makes the most memory wait, if a request has waited for too long.
void Acceptor::end_holder() noexcept {
  holder_timer_.start(loop_, loop_.after(memory_check));
  const bool waits = std::ranges::any_of(sessions_, [&](const NbdSession* session) {
    const std::optional<Time> since = session->waiting_since();
    return since && loop_.now() - *since >= limits_.memory_wait_max;
  });
  if (!waits) return;
  const auto most = std::ranges::max_element(sessions_, {}, &NbdSession::held_bytes);
  if ((*most)->held_bytes() == 0) return;
  loop_.log(LogLevel::warning, "nbd",
            "a connection was ended: its client made " + std::to_string((*most)->held_bytes()) +
                " bytes of memory wait, for which others waited");
  (*most)->abort();
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
  holder_timer_.stop();
}

}  // namespace hawser::block::nbd
