#include "exec/io_uring_poller.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/try.h"
#include "exec/epoll_poller.h"

namespace hawser::exec {
namespace {

// Returns true if a poll that ended with this error may be tried again.
bool passes(int error) noexcept { return error == ECANCELED || error == EAGAIN || error == EINTR || error == ENOMEM; }

}  // namespace

Result<std::unique_ptr<Poller>> IoUringPoller::make() {
  TRY(std::unique_ptr<IoUring> ring, IoUring::make());
  Descriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) {
    return fail(Error::of_transport(ErrorCode::unavailable, "eventfd: " + std::generic_category().message(errno)));
  }
  return std::unique_ptr<Poller>(new IoUringPoller(std::move(ring), std::move(bell)));
}

IoUringPoller::IoUringPoller(std::unique_ptr<IoUring> ring, Descriptor bell)
    : ring_(std::move(ring)), bell_(std::move(bell)) {
  watch(bell_.get(), wake_);
}

IoUringPoller::~IoUringPoller() {
  ring_.reset();  // Before the descriptor that it polls.
}

Time IoUringPoller::now() const noexcept { return monotonic_now(); }

std::size_t IoUringPoller::wait(Duration timeout, Time& now) {
  ring_->enter(timeout);
  now = monotonic_now();
  const std::size_t wakes = wake_.seen;
  const std::size_t notified = ring_->deliver();
  return notified - (wake_.seen - wakes);
}

// The eventfd is never read: each write raises an edge by itself, and the counter cannot reach its maximum.
void IoUringPoller::wake() noexcept { eventfd_write(bell_.get(), 1); }

IoUringPoller::Watch::Watch(IoUring& on, int watched, Watcher& notified)
    : ring(on), fd(watched), watcher(notified), token(ring.poll_always(fd, POLLIN | POLLOUT | POLLRDHUP, *this)) {}

void IoUringPoller::Watch::on_completion(const IoUring::Completion& completion) {
  if (completion.result < 0 && !passes(-completion.result)) {
    // Another poll of this descriptor would fail at once each time. The watcher's owner sees the error when it uses the
    // descriptor.
    return watcher.on_ready({.readable = true, .writable = true, .hangup = true, .broken = true});
  }
  if (!completion.more) token = ring.poll_always(fd, POLLIN | POLLOUT | POLLRDHUP, *this);
  if (completion.result < 0) return;
  const auto events = static_cast<unsigned>(completion.result);
  // This is the last statement, because the watcher may end this watch.
  watcher.on_ready({.readable = (events & (POLLIN | POLLRDHUP | POLLHUP | POLLERR)) != 0,
                    .writable = (events & POLLOUT) != 0,
                    .hangup = (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0,
                    .broken = (events & POLLERR) != 0});
}

void IoUringPoller::watch(int fd, Watcher& watcher) {
  std::unique_ptr<Watch>& place = watches_[fd];
  try {
    place = std::make_unique<Watch>(*ring_, fd, watcher);
  } catch (...) {
    watches_.erase(fd);
    throw;
  }
}

void IoUringPoller::unwatch(int fd, Watcher& watcher) noexcept {
  const auto found = watches_.find(fd);
  if (found == watches_.end() || &found->second->watcher != &watcher) return;
  ring_->forget({found->second->token});
  watches_.erase(found);
}

}  // namespace hawser::exec
