#include "base/write_signals.h"

#include <time.h>

#include <cerrno>
#include <initializer_list>

namespace hawser {

WriteSignalsBlocked::WriteSignalsBlocked() noexcept {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  sigemptyset(&blocked_);
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    if (sigismember(&pending, signal) != 1) sigaddset(&blocked_, signal);
  }
  // A signal that is pending is blocked already, or this thread would have received it.
  pthread_sigmask(SIG_BLOCK, &blocked_, &previous_);
}

WriteSignalsBlocked::~WriteSignalsBlocked() {
  const int error = errno;
  const timespec now{};
  while (sigtimedwait(&blocked_, nullptr, &now) > 0 || errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  errno = error;
}

}  // namespace hawser
