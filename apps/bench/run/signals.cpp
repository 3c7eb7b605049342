#include "bench/run/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace hawser::bench {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

Signals::~Signals() { close(descriptor_); }

int Signals::take() const noexcept {
  signalfd_siginfo info{};
  return read(descriptor_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info)) ? static_cast<int>(info.ssi_signo)
                                                                                      : 0;
}

}  // namespace hawser::bench
