#include "transport/tcp/uring_engine.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exec/live_loops.h"

namespace hawser::transport {

UringEngine::UringEngine(Loop& loop, exec::IoUring& ring, int fd, StreamSink& sink)
    : loop_(loop), ring_(ring), fd_(fd), sink_(&sink) {
  // The kernel always reports errors, whatever events are requested.
  error_.token = ring_.poll_always(fd_, 0, error_);
  try {
    receive_more();
  } catch (...) {
    ring_.forget({error_.token});
    throw;
  }
}

UringEngine::~UringEngine() {
  if (!exec::is_live_loop(loop_)) return;  // Its ring has ended, too.
  poll_later(false);
  ring_.forget({receiving_.token, readable_.token, writable_.token, error_.token});
}

// ---- Sending ----

std::size_t UringEngine::send(std::span<const ConstBuffer> pieces) {
  if (send_error_ != 0 || ended_) return 0;
  const Sent sent = send_now(fd_, pieces);
  if (sent.error != 0) {
    send_error_ = sent.error;
    send_broken_ = sent.broken;
    // The error is handled in the loop's next turn, not from within this call. Receiving reports a broken connection,
    // after the data that can still be received.
    if (!send_broken_ || paused_ || half_closed_) poll_later(true);
  } else if (!sent.all && !writable_.running()) {
    writable_.token = ring_.poll(fd_, POLLOUT, writable_);
  }
  return sent.bytes;
}

void UringEngine::on_writable(const exec::IoUring::Completion&) {
  if (!ended_) sink_->sendable(0);
}

void UringEngine::on_error(const exec::IoUring::Completion& completion) {
  broken_ |= completion.result > 0 && (completion.result & POLLERR) != 0;
  if (!completion.more && !broken_ && !ended_ && (completion.result >= 0 || completion.result == -ECANCELED)) {
    error_.token = ring_.poll_always(fd_, 0, error_);
  }
  if (half_closed_ && broken_ && !paused_) return end(end_reason(0, send_error_));
  notify_if_broken();
}

// A paused stream is not received from, so receiving does not report the break.
void UringEngine::notify_if_broken() {
  if (!paused_ || ended_ || (!broken_ && send_error_ == 0) || std::exchange(notified_broken_, true)) return;
  sink_->broken(end_reason(0, send_error_));
}

// ---- Receiving ----

void UringEngine::on_received(const exec::IoUring::Completion& completion) {
  if (!completion.data.empty()) {
    receive(completion.data);
  } else if (completion.result == 0) {
    end(end_reason(0, send_error_));
  } else if (completion.result != -ECANCELED && completion.result != -ENOBUFS && completion.result != -EINTR &&
             completion.result != -EAGAIN) {
    broken_ = true;
    end(end_reason(completion.result, send_error_));
  }
  if (!completion.more) receive_more();
  notify_if_broken();
}

void UringEngine::receive(Bytes data) {
  if (ended_) return;
  const std::size_t fed = held_.empty() ? feed(data) : 0;
  if (ended_) return;
  if (fed < data.size()) {
    held_.push_back(Buffer::copy_of(data.subspan(fed)));
  } else if (!paused_) {
    sink_->received(0);
  }
}

// Delivers as many bytes as the sink accepts before it pauses. Returns their number.
std::size_t UringEngine::feed(Bytes data) {
  std::size_t fed = 0;
  while (fed < data.size() && !paused_ && !ended_) {
    const MutableBytes space = sink_->receive_space();
    const std::size_t size = std::min(space.size(), data.size() - fed);
    if (space.size() - size >= direct_bytes_min && !std::exchange(by_hand_, true)) {
      small_rounds_ = 0;
      ring_.cancel(receiving_.token);
    }
    std::memcpy(space.data(), data.data() + fed, size);
    fed += size;
    sink_->received(size);
  }
  return fed;
}

void UringEngine::feed_held() {
  while (!held_.empty() && !paused_ && !ended_) {
    // Removed from the queue meanwhile, because the sink may pause and resume.
    const Buffer front = std::move(held_.front());
    held_.pop_front();
    if (const std::size_t fed = feed(front.bytes()); fed < front.size() && !ended_) {
      held_.push_front(front.slice(fed, front.size() - fed));
    }
  }
  if (held_.empty() && held_end_ && !paused_ && !ended_) {
    const Error reason = *std::exchange(held_end_, std::nullopt);
    end(reason);
  }
}

// Starts the operation that receives the next bytes, unless it is running already. The ring's last completion comes
// before the first direct receive, which keeps the order.
void UringEngine::receive_more() {
  if (paused_ || ended_ || half_closed_ || held_end_ || receiving_.running()) return;
  if (!held_.empty()) return poll_later(true);
  if (by_hand_) {
    if (!readable_.running()) readable_.token = ring_.poll(fd_, POLLIN | POLLRDHUP, readable_);
  } else {
    receiving_.token = ring_.receive(fd_, receiving_);
  }
}

void UringEngine::on_readable(const exec::IoUring::Completion&) {
  if (receiving_.running()) return;
  if (held_.empty()) receive_by_hand();
  receive_more();
  notify_if_broken();
}

void UringEngine::receive_by_hand() {
  bool large = false;
  for (unsigned turn = 0; turn < receives_per_turn && !paused_ && !ended_; ++turn) {
    const MutableBytes space = sink_->receive_space();
    large |= space.size() >= direct_bytes_min;
    const ssize_t size = recv(fd_, space.data(), space.size(), MSG_DONTWAIT);
    if (size > 0) {
      sink_->received(static_cast<std::size_t>(size));
      // A short receive has emptied the socket.
      if (static_cast<std::size_t>(size) < space.size()) break;
      continue;
    }
    const int error = size < 0 ? errno : 0;
    sink_->received_nothing();
    if (error != EAGAIN && error != EINTR) {
      broken_ |= size < 0;
      end(end_reason(-error, send_error_));
    }
    break;
  }
  if (!paused_ && !ended_) sink_->received(0);
  small_rounds_ = large ? 0 : small_rounds_ + 1;
  if (small_rounds_ > small_rounds_max) by_hand_ = false;
}

void UringEngine::pause() noexcept {
  paused_ = true;
  if (receiving_.running()) ring_.cancel(receiving_.token);
}

void UringEngine::resume() {
  if (!std::exchange(paused_, false) || ended_) return;
  if (!held_.empty() || held_end_ || send_error_ != 0) {
    poll_later(true);
  } else {
    receive_more();
  }
}

void UringEngine::poll_later(bool later) {
  if (later_ == later) return;
  later_ = later;
  if (later) {
    loop_.add_source(*this);
  } else {
    loop_.remove_source(*this);
  }
}

bool UringEngine::poll() {
  poll_later(false);
  feed_held();
  if (send_error_ != 0 && (!send_broken_ || half_closed_) && !ended_ && !paused_) end(end_reason(0, send_error_));
  receive_more();
  notify_if_broken();
  return true;
}

// ---- End ----

void UringEngine::end(const Error& reason) {
  if (ended_) return;
  if (paused_ || !held_.empty()) {
    held_end_ = reason;
    return;
  }
  if (half_closed()) return;
  ended_ = true;
  poll_later(false);
  sink_->ended(reason);
}

// At the end. Returns true if it is the end of the peer's direction only, and the sink still sends.
bool UringEngine::half_closed() {
  if (broken_ || send_error_ != 0) return false;
  if (!half_closed_) half_closed_ = sink_->continues_after_end();
  return half_closed_;
}

}  // namespace hawser::transport
