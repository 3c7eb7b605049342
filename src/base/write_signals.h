#pragma once

#include <signal.h>

namespace hawser {

// While it lives, a write() of this thread to a pipe or socket without a reader returns EPIPE, and a write or a
// ftruncate() above RLIMIT_FSIZE returns EFBIG. Without it they also raise SIGPIPE and SIGXFSZ, which end the process
// unless the application has handlers. The state that the application gave to these signals stays as it is, and so does
// a signal that was pending before.
class WriteSignalsBlocked {
 public:
  WriteSignalsBlocked() noexcept;
  WriteSignalsBlocked(const WriteSignalsBlocked&) = delete;
  WriteSignalsBlocked& operator=(const WriteSignalsBlocked&) = delete;
  // Keeps errno.
  ~WriteSignalsBlocked();

 private:
  sigset_t blocked_;   // No signal that was pending before: one that is pending at the end is the library's.
  sigset_t previous_;  // The mask of the thread.
};

}  // namespace hawser
