#include "transport/tcp/tcp_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>

namespace hawser::transport {
namespace {

constexpr std::size_t iovecs_max = 64;

}  // namespace

TcpStream::~TcpStream() {
  if (loop_ == nullptr) return;
  set_hot(false);
  loop_->poller().unwatch(socket_.get(), *this);
}

void TcpStream::start(Loop& loop, StreamSink& sink) {
  loop_ = &loop;
  sink_ = &sink;
  loop.poller().watch(socket_.get(), *this);
}

std::size_t TcpStream::send(std::span<const Piece> pieces) {
  ssize_t sent = 0;
  if (pieces.size() == 1) {
    sent = ::send(socket_.get(), pieces[0].data, pieces[0].size, MSG_NOSIGNAL | MSG_DONTWAIT);
  } else {
    std::array<iovec, iovecs_max> vectors;
    const std::size_t count = std::min(pieces.size(), vectors.size());
    for (std::size_t i = 0; i < count; ++i) vectors[i] = {const_cast<std::byte*>(pieces[i].data), pieces[i].size};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // A broken connection shows as a hang-up, which the poller reports; until then nothing is taken.
  const std::size_t taken = sent < 0 ? 0 : static_cast<std::size_t>(sent);
  std::size_t offered = 0;
  for (const Piece& piece : pieces) offered += piece.size;
  blocked_ = taken < offered;
  return taken;
}

void TcpStream::resume() {
  if (!std::exchange(paused_, false) || ended_) return;
  // What arrived meanwhile raised no new edge: look, at the loop's next turn.
  readable_ = true;
  set_hot(true);
}

void TcpStream::finish() noexcept { shutdown(socket_.get(), SHUT_WR); }

void TcpStream::on_ready(exec::Readiness readiness) {
  if (readiness.writable && blocked_) {
    blocked_ = false;
    sink_->sendable(0);
  }
  if (!readiness.readable || ended_) return;
  readable_ = true;
  if (paused_) return;
  const bool got = receive();
  if (ended_) return;
  // More than a turn's worth waits, or more is likely soon: be polled.
  if (readable_ || (got && loop_->options().wait != Wait::event && loop_->sources() < hot_max)) set_hot(true);
}

bool TcpStream::poll() {
  if (paused_ || ended_) {
    set_hot(false);
    return false;
  }
  if (receive()) {
    idle_polls_ = 0;
    return true;
  }
  if (!ended_ && (loop_->options().wait == Wait::event || ++idle_polls_ > idle_polls_max)) set_hot(false);
  return ended_;
}

bool TcpStream::receive() {
  bool got = false;
  for (unsigned turn = 0; turn < receives_per_turn && !paused_ && !ended_; ++turn) {
    const MutableBytes space = sink_->receive_space();
    const ssize_t size = recv(socket_.get(), space.data(), space.size(), MSG_DONTWAIT);
    if (size > 0) {
      // A short receive has emptied the socket; what comes later raises a new edge.
      readable_ = static_cast<std::size_t>(size) == space.size();
      got = true;
      sink_->received(static_cast<std::size_t>(size));
      if (!readable_) return true;
    } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      readable_ = errno == EINTR;
      return got;
    } else {
      const int error = size < 0 ? errno : 0;
      end(size == 0 ? Error{ErrorCode::unavailable, ErrorScope::connection, Initiator::peer, 0,
                            "the peer closed the connection"}
                    : socket_error(ErrorCode::unavailable, "receiving failed", error));
      return true;
    }
  }
  return got;
}

void TcpStream::set_hot(bool hot) {
  if (hot_ == hot) return;
  hot_ = hot;
  idle_polls_ = 0;
  if (hot) {
    loop_->add_source(*this);
  } else {
    loop_->remove_source(*this);
  }
}

void TcpStream::end(Error reason) {
  ended_ = true;
  readable_ = false;
  set_hot(false);
  sink_->ended(reason);
}

}  // namespace hawser::transport
