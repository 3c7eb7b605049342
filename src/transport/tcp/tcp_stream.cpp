#include "transport/tcp/tcp_stream.h"

#include <sys/socket.h>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"
#include "transport/tcp/readiness_engine.h"
#include "transport/tcp/uring_engine.h"

namespace hawser::transport {

TcpStream::TcpStream(Descriptor socket)
    : socket_(std::move(socket)), transport_(is_unix(socket_.get()) ? "unix" : "tcp"), peer_(peer_of(socket_.get())) {
  bound_local_send_buffer(socket_.get());
}

void TcpStream::start(Loop& loop, StreamSink& sink) {
  if (exec::IoUring* const ring = loop.poller().io_uring(); ring != nullptr) {
    engine_ = std::make_unique<UringEngine>(loop, *ring, socket_.get(), sink);
  } else {
    engine_ = std::make_unique<ReadinessEngine>(loop, socket_.get(), sink);
  }
}

void TcpStream::finish() noexcept { shutdown(socket_.get(), SHUT_WR); }

}  // namespace hawser::transport
