#include "block/nbd/byte_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <coroutine>

namespace hawser::block::nbd {
namespace {

// Lets the loop do other work.
struct NbdTurn {
  Loop& loop;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiting) const { loop.resume_soon(waiting); }
  void await_resume() const noexcept {}
};

}  // namespace

SocketDescriptor::~SocketDescriptor() {
  if (valid()) ::close(number_);
}

ByteSocket::ByteSocket(Loop& loop, SocketDescriptor socket, Owner& owner)
    : loop_(loop), socket_(std::move(socket)), owner_(owner) {
  loop_.poller().watch(socket_.get(), *this);
}

ByteSocket::~ByteSocket() {
  set_hot(false);
  loop_.poller().unwatch(socket_.get(), *this);
}

void ByteSocket::set_hot(bool hot) noexcept {
  if (hot_ == hot) return;
  hot_ = hot;
  idle_polls_ = 0;
  if (hot) {
    loop_.add_source(*this);
  } else {
    loop_.remove_source(*this);
  }
}

// True if bytes were received, or nothing more will be.
bool ByteSocket::try_receive(MutableBytes into) noexcept {
  for (;;) {
    const ssize_t got = ::recv(socket_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got > 0) {
      got_ = static_cast<std::size_t>(got);
      // A short receive has emptied the socket. Later bytes raise a new edge, but an end that came before does not.
      readable_ = got_ == into.size() || closing_;
      return true;
    }
    if (got < 0 && errno == EINTR) continue;
    readable_ = false;
    if (got < 0 && errno == EAGAIN) return false;
    if (got < 0) broken_ = true;
    closing_ = true;
    ended_ = true;
    return true;
  }
}

Task<std::size_t> ByteSocket::receive(MutableBytes into) {
  got_ = 0;
  if (readable_ && ++receives_ > receives_per_turn) {
    receives_ = 0;
    co_await NbdTurn{loop_};
  }
  if (ended_) co_return 0;
  if (readable_ && try_receive(into)) co_return got_;
  receives_ = 0;
  waiting_ = into;
  arrived_.reset();
  co_await arrived_.wait();
  co_return got_;
}

void ByteSocket::stop_receiving() noexcept {
  ended_ = true;
  waiting_ = {};
  arrived_.set();
}

void ByteSocket::abort() noexcept {
  broken_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);
  stop_receiving();
  owner_.on_writable();
}

void ByteSocket::on_ready(exec::Readiness readiness) {
  if (readiness.hangup && !closing_) {
    closing_ = true;
    owner_.on_peer_end();
  }
  if (readiness.readable) readable_ = true;
  if (!waiting_.empty() && readable_ && try_receive(waiting_)) {
    waiting_ = {};
    arrived_.set();
    // The next bytes are likely to arrive soon.
    if (!ended_ && loop_.options().wait != Wait::event && loop_.sources() < hot_max) set_hot(true);
  }
  if (readiness.broken) broken_ = true;
  // A peer that has closed both directions is found by sending.
  if (!readiness.writable && !readiness.hangup) return;
  blocked_ = false;
  owner_.on_writable();
}

bool ByteSocket::poll() {
  if (!waiting_.empty() && try_receive(waiting_)) {
    idle_polls_ = 0;
    waiting_ = {};
    arrived_.set();
    return true;
  }
  if (++idle_polls_ > idle_polls_max) set_hot(false);
  return false;
}

std::size_t ByteSocket::send(std::span<const ConstBuffer> pieces) noexcept {
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

}  // namespace hawser::block::nbd
