#include "os/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace hawser {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, Duration timeout) noexcept {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t count = timeout.count() < 0 ? 0 : timeout.count();
  const timespec limit = {.tv_sec = count / second, .tv_nsec = count % second};
  // An interrupted or refused wait is an early return.
  static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, timeout == forever ? nullptr : &limit));
}

void futex_wake(const std::atomic<std::uint32_t>& word) noexcept {
  static_cast<void>(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1));
}

}  // namespace hawser
