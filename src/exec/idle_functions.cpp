#include "exec/idle_functions.h"

#include <liburing.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace hawser::exec {
namespace {

// Prevents that a call at the end of a function becomes a jump: the function would be missing in the stack.
[[gnu::always_inline]] inline void stay_in_stack() noexcept { asm volatile("" ::: "memory"); }

}  // namespace

[[gnu::noinline]] int sleep_in_epoll(int epoll, std::span<epoll_event> events, Duration timeout,
                                     bool& precise) noexcept {
  const int events_max = static_cast<int>(events.size());
  if (precise && timeout != forever) {
    const timespec limit{static_cast<time_t>(timeout.count() / 1'000'000'000),
                         static_cast<long>(timeout.count() % 1'000'000'000)};
    const int count = epoll_pwait2(epoll, events.data(), events_max, &limit, nullptr);
    if (count >= 0 || errno == EINTR) return count;
    precise = false;
  }
  // Kernels before 5.11 lack epoll_pwait2(), and some sandboxes forbid it. epoll_wait() takes milliseconds; they are
  // rounded up so that no timer is early.
  constexpr Duration wait_max = std::chrono::hours(24);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::min(timeout, wait_max)).count();
  const int count = epoll_wait(epoll, events.data(), events_max, timeout == forever ? -1 : static_cast<int>(ms));
  stay_in_stack();
  return count;
}

[[gnu::noinline]] void sleep_in_ring(io_uring* ring, Duration timeout) noexcept {
  if (timeout == forever) {
    io_uring_submit_and_wait(ring, 1);
  } else {
    __kernel_timespec limit{.tv_sec = timeout.count() / 1'000'000'000, .tv_nsec = timeout.count() % 1'000'000'000};
    io_uring_cqe* ignored = nullptr;
    io_uring_submit_and_wait_timeout(ring, &ignored, 1, &limit, nullptr);
  }
  stay_in_stack();
}

[[gnu::noinline]] void sleep_until_work(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                                        Duration timeout) {
  if (timeout == forever) {
    changed.wait(lock);
  } else {
    changed.wait_for(lock, timeout);
  }
  stay_in_stack();
}

std::span<const void* const> idle_functions() noexcept {
  static const std::array functions{reinterpret_cast<const void*>(&sleep_in_epoll),
                                    reinterpret_cast<const void*>(&sleep_in_ring),
                                    reinterpret_cast<const void*>(&sleep_until_work)};
  return functions;
}

}  // namespace hawser::exec
