#include "transport/tcp/application_socket.h"

#include <sys/socket.h>

#include <utility>

#include "transport/tcp/socket.h"

namespace hawser::transport {

ApplicationSocket::ApplicationSocket(Loop& loop, Descriptor socket, StreamSink& sink, ReadinessObserver& observer)
    : socket_(std::move(socket)),
      transport_(is_unix(socket_.get()) ? "unix" : "tcp"),
      peer_(peer_of(socket_.get())),
      observer_(observer),
      engine_(loop, socket_.get(), sink, &observer) {
  engine_.pause();
}

std::string ApplicationSocket::local() const { return local_of(socket_.get()); }

std::shared_ptr<const Identity> ApplicationSocket::identity() const { return unix_peer_of(socket_.get()); }

void ApplicationSocket::finish() noexcept {
  ::shutdown(socket_.get(), SHUT_WR);
  observer_.on_finished();
}

void ApplicationSocket::shut_down() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace hawser::transport
