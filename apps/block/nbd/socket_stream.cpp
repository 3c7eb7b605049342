#include "block/nbd/socket_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hawser::block::nbd {

SocketDescriptor::~SocketDescriptor() {
  if (valid()) ::close(number_);
}

SocketStream::SocketStream(Loop& loop, SocketDescriptor socket, std::string peer, Owner& owner)
    : loop_(loop), socket_(std::move(socket)), peer_(std::move(peer)), owner_(owner) {
  loop_.poller().watch(socket_.get(), *this);
}

SocketStream::~SocketStream() {
  set_hot(false);
  loop_.poller().unwatch(socket_.get(), *this);
}

void SocketStream::set_hot(bool hot) noexcept {
  if (hot_ == hot) return;
  hot_ = hot;
  idle_polls_ = 0;
  if (hot) {
    loop_.add_source(*this);
  } else {
    loop_.remove_source(*this);
  }
}

// ---- Receiving ----

void SocketStream::end(std::string_view why) {
  closing_ = true;
  ended_ = true;
  if (!broken_ && sink_->continues_after_end()) return;
  sink_->ended(Error::of_connection(Initiator::peer, ErrorCode::unavailable, std::string(why)));
}

// Returns true if the sink was notified of bytes or of the end.
bool SocketStream::receive_once() {
  const MutableBytes into = sink_->receive_space();
  ssize_t got = 0;
  do {
    got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    const auto bytes = static_cast<std::size_t>(got);
    // A short receive has emptied the socket. Later bytes raise a new edge, but an end that came before does not.
    readable_ = bytes == into.size() || closing_;
    sink_->received(bytes);
    return true;
  }
  readable_ = false;
  if (got < 0 && errno == EAGAIN) return false;
  broken_ = got < 0;
  end(broken_ ? "the connection broke" : "the client closed the connection");
  return true;
}

// Returns true if the sink was notified of bytes or of the end.
bool SocketStream::receive() {
  bool notified = false;
  while (!paused_ && readable_ && !ended_) notified = receive_once() || notified;
  if (!paused_ && !ended_) sink_->received(0);
  return notified;
}

void SocketStream::resume() {
  paused_ = false;
  receive();
}

void SocketStream::on_ready(exec::Readiness readiness) {
  if (readiness.hangup && !closing_) {
    closing_ = true;
    owner_.on_socket_end();
  }
  if (readiness.readable) readable_ = true;
  // The next bytes are likely to arrive soon.
  if (receive() && !ended_ && loop_.options().wait != Wait::event && loop_.sources() < hot_max) set_hot(true);
  if (readiness.broken) broken_ = true;
  if (!readiness.hangup && !broken_ && !(readiness.writable && blocked_)) return;
  // A peer that has closed both directions is found by sending.
  blocked_ = false;
  sink_->sendable(0);
  if (broken_) owner_.on_socket_broken();
}

bool SocketStream::poll() {
  if (!paused_ && !ended_) {
    readable_ = true;
    if (receive()) {
      idle_polls_ = 0;
      return true;
    }
  }
  if (++idle_polls_ > idle_polls_max) set_hot(false);
  return false;
}

// ---- Sending ----

std::size_t SocketStream::send(std::span<const ConstBuffer> pieces) {
  if (blocked_ || broken_) return 0;
  std::array<iovec, 64> parts;
  const std::size_t count = std::min(parts.size(), pieces.size());
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    wanted += pieces[i].size;
    parts[i] = {.iov_base = const_cast<std::byte*>(pieces[i].data), .iov_len = pieces[i].size};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN) broken_ = true;
  const std::size_t accepted = sent < 0 ? 0 : static_cast<std::size_t>(sent);
  blocked_ = accepted < wanted;
  return accepted;
}

void SocketStream::finish() noexcept {
  finished_ = true;
  ::shutdown(socket_.get(), SHUT_WR);
  owner_.on_socket_finished();
}

void SocketStream::shut_down() noexcept {
  broken_ = true;
  ended_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace hawser::block::nbd
