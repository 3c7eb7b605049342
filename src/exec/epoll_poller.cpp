#include "exec/epoll_poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "exec/idle_functions.h"

namespace hawser::exec {
namespace {

[[noreturn]] void fail_setup(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

Time monotonic_now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return Time(Duration(std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec));
}

EpollPoller::EpollPoller() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.valid()) fail_setup("epoll_create1");
  if (!wake_.valid()) fail_setup("eventfd");
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = wake_token;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
}

Time EpollPoller::now() const noexcept { return monotonic_now(); }

std::size_t EpollPoller::wait(Duration timeout, Time& now) {
  std::array<epoll_event, events_max> events;
  const int count = timeout == Duration::zero() ? epoll_wait(epoll_.get(), events.data(), events_max, 0)
                                                : sleep_in_epoll(epoll_.get(), events, timeout, precise_);
  now = monotonic_now();
  std::size_t delivered = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    // The eventfd is never read: each write raises an edge by itself, and the counter cannot reach its maximum.
    if (event.data.u64 == wake_token) continue;
    // The watcher is looked up when its event is delivered: an earlier event of this batch may have unwatched it.
    if (Watcher* watcher = watchers_.find(event.data.u64); watcher != nullptr) {
      ++delivered;
      watcher->on_ready({.readable = (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0,
                         .writable = (event.events & EPOLLOUT) != 0,
                         .hangup = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0,
                         .broken = (event.events & EPOLLERR) != 0});
    }
  }
  return delivered;
}

void EpollPoller::wake() noexcept { eventfd_write(wake_.get(), 1); }

void EpollPoller::watch(int fd, Watcher& watcher) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = watchers_.add(fd, watcher);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = errno;
    watchers_.remove(fd, watcher);
    throw std::system_error(error, std::generic_category(),
                            "epoll_ctl cannot watch descriptor " + std::to_string(fd) +
                                (error == ENOSPC ? " (raise fs.epoll.max_user_watches)" : ""));
  }
}

void EpollPoller::unwatch(int fd, Watcher& watcher) noexcept {
  if (watchers_.remove(fd, watcher)) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

}  // namespace hawser::exec
