#include "local_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace local_transport {

using hawser::Error;
using hawser::ErrorCode;
using hawser::ErrorScope;
using hawser::Initiator;

namespace {

Error gone(std::string why) { return Error::of_connection(Initiator::peer, ErrorCode::unavailable, std::move(why)); }

}  // namespace

Socket::~Socket() {
  if (valid()) ::close(fd_);
}

LocalStream::~LocalStream() {
  if (loop_ != nullptr && socket_.valid()) loop_->poller().unwatch(socket_.get(), *this);
}

void LocalStream::start(hawser::Loop& loop, hawser::transport::StreamSink& sink) {
  sink_ = &sink;
  if (socket_.valid()) {
    loop.poller().watch(socket_.get(), *this);
  } else {
    peer_gone_ = gone("the peer's Unix socket is not there");
  }
  loop_ = &loop;
  beside_->set_sink(*this);
  beside_->resume();
  read_soon();
}

std::size_t LocalStream::send(std::span<const hawser::ConstBuffer> pieces) {
  if (blocked_ || !socket_.valid()) return 0;
  std::array<iovec, 64> parts;
  const std::size_t count = std::min(parts.size(), pieces.size());
  for (std::size_t i = 0; i < count; ++i) {
    parts[i] = {.iov_base = const_cast<std::byte*>(pieces[i].data), .iov_len = pieces[i].size};
  }
  std::size_t all = 0;
  for (const hawser::ConstBuffer& piece : pieces) all += piece.size;
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  // A broken socket is detected by reading.
  const std::size_t taken = sent < 0 ? 0 : static_cast<std::size_t>(sent);
  blocked_ = taken < all;
  return taken;
}

void LocalStream::resume() {
  paused_ = false;
  read_soon();
}

void LocalStream::finish() noexcept {
  if (socket_.valid()) ::shutdown(socket_.get(), SHUT_WR);
}

void LocalStream::on_ready(hawser::exec::Readiness readiness) {
  if (readiness.readable || readiness.hangup || readiness.broken) read();
  if (readiness.writable && !ended_ && std::exchange(blocked_, false)) sink_->sendable(0);
}

// A peer sends nothing over the byte stream once the transport carries the messages.
void LocalStream::received(std::size_t bytes) {
  if (bytes == 0 || peer_gone_) return;
  peer_gone_ = Error::of_connection(Initiator::peer, ErrorCode::protocol_error,
                                    "bytes on the byte stream beside transport local: expected none");
  read_soon();
}

void LocalStream::ended(const Error& reason) {
  if (!peer_gone_) peer_gone_ = reason;
  read_soon();
}

void LocalStream::read_soon() {
  loop_->post([this, alive = std::weak_ptr<char>(alive_)] {
    if (!alive.expired()) read();
  });
}

void LocalStream::read() {
  if (ended_ || std::exchange(reading_, true)) return;
  for (int reads = 0; !paused_ && !ended_; ++reads) {
    if (reads == reads_max) {
      read_soon();
      break;
    }
    const hawser::MutableBytes space = sink_->receive_space();
    if (paused_) break;
    const ssize_t got = socket_.valid() ? ::recv(socket_.get(), space.data(), space.size(), MSG_DONTWAIT) : 0;
    if (got > 0) {
      sink_->received(static_cast<std::size_t>(got));
    } else if (got == 0) {
      end(peer_gone_ ? *peer_gone_ : gone("the peer closed the connection"));
    } else if (errno == EAGAIN) {
      if (peer_gone_) end(*peer_gone_);
      if (!ended_) sink_->received(0);
      break;
    } else if (errno != EINTR) {
      end(gone(std::string("the Unix socket broke: ") + std::strerror(errno)));
    }
  }
  reading_ = false;
}

void LocalStream::end(const Error& reason) {
  ended_ = true;
  sink_->ended(reason);
}

}  // namespace local_transport
