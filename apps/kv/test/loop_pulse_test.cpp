#include "process/loop_pulse.h"

#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>

namespace hawser::kv {
namespace {

constexpr auto pulse_interval = std::chrono::milliseconds(1);

void await_beat(process::LoopPulse& pulse) {
  while (!pulse.all_beat()) std::this_thread::sleep_for(pulse_interval);
}

TEST(LoopPulse, StopsWithOneBlockedLoop) {
  Server server({.threads = 2});
  ASSERT_TRUE(server.start());
  process::LoopPulse pulse(server, pulse_interval);
  await_beat(pulse);
  await_beat(pulse);
  std::latch blocked(1);
  std::latch released(1);
  ASSERT_TRUE(server.spawn([&](Background) -> Task<void> {
    blocked.count_down();
    released.wait();
    co_return;
  }));
  blocked.wait();
  // The blocked loop may have been marked before.
  int beats = 0;
  for (int i = 0; i < 10; ++i) {
    std::this_thread::sleep_for(pulse_interval);
    if (pulse.all_beat()) ++beats;
  }
  EXPECT_LE(beats, 1);
  released.count_down();
  await_beat(pulse);
  await_beat(pulse);
  server.stop();
}

}  // namespace
}  // namespace hawser::kv
