#include "os/pin_thread.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <thread>

namespace hawser {
namespace {

cpu_set_t processors_of(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(thread, sizeof set, &set), 0);
  return set;
}

TEST(PinThread, OneProcessorAndThenAllOfTheFirstThread) {
  const cpu_set_t all = processors_of(::getpid());
  std::thread([&] {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(static_cast<unsigned>(cpu), &all)) continue;
      ASSERT_TRUE(pin_thread(cpu));
      const cpu_set_t own = processors_of(0);
      EXPECT_EQ(CPU_COUNT(&own), 1);
      EXPECT_TRUE(CPU_ISSET(static_cast<unsigned>(cpu), &own));
    }
    EXPECT_EQ(unpin_thread(), static_cast<unsigned>(CPU_COUNT(&all)));
    const cpu_set_t own = processors_of(0);
    EXPECT_TRUE(CPU_EQUAL(&own, &all));
  }).join();
}

TEST(PinThread, AProcessorThatDoesNotExistIsRefused) {
  for (const int cpu : {-1, CPU_SETSIZE, CPU_SETSIZE + 1}) EXPECT_FALSE(pin_thread(cpu)) << cpu;
}

}  // namespace
}  // namespace hawser
