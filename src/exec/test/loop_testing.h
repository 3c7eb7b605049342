#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "hawser/loop.h"
#include "hawser/transport/poller.h"

namespace hawser::exec {

// Parameters of tests with real loops: each poller, and each way of waiting.
using LoopKind = std::tuple<PollerKind, Wait>;

inline LoopOptions options_of(const LoopKind& kind) {
  LoopOptions options;
  options.poller = std::get<PollerKind>(kind);
  options.wait = std::get<Wait>(kind);
  options.log = no_log();
  return options;
}

inline std::string name_of(const testing::TestParamInfo<LoopKind>& info) {
  const Wait wait = std::get<Wait>(info.param);
  return std::string(std::get<PollerKind>(info.param) == PollerKind::epoll ? "epoll" : "io_uring") + "_" +
         (wait == Wait::spin    ? "spin"
          : wait == Wait::event ? "event"
                                : "busy_poll");
}

// A test with a loop of each kind. It is skipped, by name, if the kernel provides no io_uring.
class LoopTest : public testing::TestWithParam<LoopKind> {
 protected:
  void SetUp() override {
    if (std::get<PollerKind>(GetParam()) == PollerKind::io_uring && loop.poller().name() != "io_uring") {
      GTEST_SKIP() << "this kernel has no io_uring that will do";
    }
  }
  Loop loop{options_of(GetParam())};
};

inline auto every_loop() {
  return testing::Combine(testing::Values(PollerKind::epoll, PollerKind::io_uring),
                          testing::Values(Wait::spin, Wait::busy_poll, Wait::event));
}

}  // namespace hawser::exec
