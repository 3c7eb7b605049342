#include "transport/tcp/readiness_engine.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "exec/live_loops.h"

namespace hawser::transport {

ReadinessEngine::ReadinessEngine(Loop& loop, int fd, StreamSink& sink, ReadinessObserver* observer)
    : loop_(loop), fd_(fd), sink_(&sink), observer_(observer) {
  loop.poller().watch(fd_, *this);
}

ReadinessEngine::~ReadinessEngine() {
  if (!exec::is_live_loop(loop_)) return;  // Its poller and its list of sources have ended, too.
  set_hot(false);
  loop_.poller().unwatch(fd_, *this);
}

std::size_t ReadinessEngine::send(std::span<const ConstBuffer> pieces) {
  if (send_error_ != 0 || ended_) return 0;
  const Sent sent = send_now(fd_, pieces);
  blocked_ = !sent.all;
  if (sent.error != 0) {
    // The error is reported in the loop's next turn: after the data that can still be received, and not from within
    // this call.
    send_error_ = sent.error;
    readable_ = true;
    set_hot(true);
  }
  return sent.bytes;
}

void ReadinessEngine::resume() {
  if (!std::exchange(paused_, false) || ended_) return;
  // Data that arrived meanwhile raised no new edge, so the next turn of the loop reads the socket.
  readable_ = true;
  set_hot(true);
}

void ReadinessEngine::receive_now() {
  if (!std::exchange(paused_, false) || ended_) return;
  // Data that arrived meanwhile has been reported.
  if (readable_) receive_ready();
}

void ReadinessEngine::on_ready(exec::Readiness readiness) {
  if (readiness.hangup && observer_ != nullptr) observer_->on_hangup(readiness.broken);
  if (readiness.writable && std::exchange(blocked_, false)) sink_->sendable(0);
  if (!readiness.readable || ended_) return;
  readable_ = true;
  closing_ |= readiness.hangup;
  broken_ |= readiness.broken;
  if (paused_) return notify_if_broken();
  receive_ready();
}

void ReadinessEngine::receive_ready() {
  const bool got = receive();
  if (paused_) return notify_if_broken();
  if (ended_) return;
  // More data waits than one turn may receive, or more is likely soon, so the socket is polled.
  if (readable_ || (got && loop_.options().wait != Wait::event && loop_.sources() < hot_max)) set_hot(true);
  if (!hot_) sink_->received(0);
}

bool ReadinessEngine::poll() {
  if (paused_ || ended_) {
    set_hot(false);
    notify_if_broken();
    return false;
  }
  const bool got = receive();
  idle_polls_ = got ? 0 : idle_polls_ + 1;
  const bool stays =
      readable_ || (loop_.options().wait != Wait::event && loop_.sources() <= hot_max && idle_polls_ <= idle_polls_max);
  if (!stays && !ended_ && hot_) {
    set_hot(false);
    if (!paused_) sink_->received(0);
  }
  return got || ended_;
}

bool ReadinessEngine::receive() {
  bool got = false;
  for (unsigned turn = 0; turn < receives_per_turn && !paused_ && !ended_; ++turn) {
    const MutableBytes space = sink_->receive_space();
    const ssize_t size = recv(fd_, space.data(), space.size(), MSG_DONTWAIT);
    if (size > 0) {
      // A short receive has emptied the socket. Later data raises a new edge, but an end that came before does not.
      readable_ = static_cast<std::size_t>(size) == space.size() || closing_ || send_error_ != 0;
      got = true;
      sink_->received(static_cast<std::size_t>(size));
      if (!readable_) return true;
      continue;
    }
    const int error = size < 0 ? errno : 0;
    sink_->received_nothing();
    if (error == EINTR) {
      readable_ = true;
    } else if (error == EAGAIN && send_error_ == 0) {
      readable_ = false;
      return got;
    } else if (size == 0 && half_closed()) {
      readable_ = false;
      return got;
    } else {
      end(-error);
      return true;
    }
  }
  return got;
}

// After the peer's end. Returns true if the sink still sends and the connection is not known to be broken.
bool ReadinessEngine::half_closed() {
  if (broken_ || send_error_ != 0) return false;
  if (!half_closed_) half_closed_ = sink_->continues_after_end();
  return half_closed_;
}

// A paused stream is not read, so receiving does not report the break. Apart from its callers, whose registers it would
// take up.
[[gnu::noinline]] void ReadinessEngine::notify_if_broken() {
  if (!paused_ || ended_ || (!broken_ && send_error_ == 0) || std::exchange(notified_broken_, true)) return;
  sink_->broken(end_reason(0, send_error_));
}

void ReadinessEngine::set_hot(bool hot) {
  if (hot_ == hot) return;
  hot_ = hot;
  idle_polls_ = 0;
  if (hot) {
    loop_.add_source(*this);
  } else {
    loop_.remove_source(*this);
  }
}

// `received` is the result of receiving. See end_reason().
[[gnu::noinline]] void ReadinessEngine::end(int received) {
  const Error reason = end_reason(received, send_error_);
  ended_ = true;
  readable_ = false;
  set_hot(false);
  sink_->ended(reason);
}

}  // namespace hawser::transport
