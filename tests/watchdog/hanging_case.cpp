#include <gtest/gtest.h>
#include <semaphore.h>

#include <thread>

// Not in an anonymous namespace, so that it has a name in the backtrace.
[[gnu::noinline]] void waits_for_ever();
void waits_for_ever() {
  sem_t never;
  sem_init(&never, 0, 0);
  while (sem_wait(&never) != 0) {
  }
}

namespace {

// Run by ctest with a limit of one second: the watchdog has to end it and to name it.
TEST(Hanging, IsNamed) {
  std::thread other(waits_for_ever);
  other.join();
}

}  // namespace
