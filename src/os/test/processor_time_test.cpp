#include "os/processor_time.h"

#include <gtest/gtest.h>

namespace hawser {
namespace {

TEST(ProcessorTime, GrowsWithWork) {
  const auto begin = processor_time_used();
  EXPECT_GT(begin.count(), 0);
  while (processor_time_used() < begin + std::chrono::milliseconds(1)) {
  }
  EXPECT_GE(processors_of_process(), 1U);
}

}  // namespace
}  // namespace hawser
