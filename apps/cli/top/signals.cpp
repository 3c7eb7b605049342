#include "cli/top/signals.h"

#include <pthread.h>

#include <utility>

namespace hawser::cli {

CommandSignals::CommandSignals(std::function<void(int)> on_signal) {
  sigset_t waited;
  sigemptyset(&waited);
  for (const int one : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&waited, one);
  pthread_sigmask(SIG_BLOCK, &waited, &before_);
  thread_ = std::thread([this, waited, handle = std::move(on_signal)] {
    int number = 0;
    while (sigwait(&waited, &number) == 0 && !ending_.load()) handle(number);
  });
}

CommandSignals::~CommandSignals() {
  ending_.store(true);
  pthread_kill(thread_.native_handle(), SIGWINCH);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace hawser::cli
