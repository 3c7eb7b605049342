#include "exec/make_poller.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "exec/io_uring_poller.h"

namespace hawser::exec {
namespace {

struct Logged {
  LogLevel level;
  std::string text;
};

LoopOptions options_with(PollerKind kind, std::vector<Logged>& log) {
  LoopOptions options;
  options.poller = kind;
  options.log = [&log](LogLevel level, std::string_view, std::string_view text) {
    log.emplace_back(level, std::string(text));
  };
  return options;
}

// Makes system call `number` fail with `error` on the calling thread, permanently. Returns false if the kernel does not
// allow this.
bool forbid(unsigned number, unsigned error) {
  const std::array<sock_filter, 4> program{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | error},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog filter{program.size(), const_cast<sock_filter*>(program.data())};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(MakePoller, EpollIsEpoll) {
  std::vector<Logged> log;
  EXPECT_EQ(make_poller(options_with(PollerKind::epoll, log))->name(), "epoll");
  EXPECT_EQ(make_poller(options_with(PollerKind::epoll, log))->io_uring(), nullptr);
  EXPECT_TRUE(log.empty());
}

TEST(MakePoller, IoUringIsTakenWhereItWorks) {
  std::vector<Logged> log;
  if (!IoUringPoller::make()) GTEST_SKIP() << "this kernel has no io_uring that will do";
  const std::unique_ptr<Poller> poller = make_poller(options_with(PollerKind::io_uring, log));
  EXPECT_EQ(poller->name(), "io_uring");
  EXPECT_NE(poller->io_uring(), nullptr);
  EXPECT_TRUE(log.empty());
}

// Most containers forbid io_uring in this way.
TEST(MakePoller, WhereItIsForbiddenEpollIsTakenAndTheReasonLogged) {
  std::thread([] {
    std::vector<Logged> log;
    if (!forbid(SYS_io_uring_setup, EPERM)) GTEST_SKIP() << "this kernel has no seccomp filters";
    EXPECT_EQ(make_poller(options_with(PollerKind::io_uring, log))->name(), "epoll");
    ASSERT_EQ(log.size(), 1U);
    EXPECT_EQ(log[0].level, LogLevel::warning);
    EXPECT_NE(log[0].text.find("io_uring_setup: Operation not permitted"), std::string::npos) << log[0].text;
    EXPECT_NE(log[0].text.find("epoll"), std::string::npos) << log[0].text;
    log.clear();
    Loop loop(options_with(PollerKind::automatic, log));
    EXPECT_EQ(loop.poller().name(), "epoll");
    for (const Logged& line : log) EXPECT_EQ(line.level, LogLevel::info);
    EXPECT_EQ(loop.run([]() -> Task<int> { co_return 7; }()), 7);
  }).join();
}

// Kernels before 5.19 lack provided buffer rings in this way.
TEST(MakePoller, WhereBuffersCannotBeProvidedEpollIsTaken) {
  std::thread([] {
    std::vector<Logged> log;
    if (!forbid(SYS_io_uring_register, EINVAL)) GTEST_SKIP() << "this kernel has no seccomp filters";
    EXPECT_EQ(make_poller(options_with(PollerKind::io_uring, log))->name(), "epoll");
    EXPECT_EQ(log.size(), 1U);
  }).join();
}

// Kernels before 5.11, and sandboxes that do not know epoll_pwait2(), fail in this way.
TEST(MakePoller, EpollSleepsWithoutPwait2) {
  std::thread([] {
    std::vector<Logged> log;
    if (!forbid(SYS_epoll_pwait2, EPERM)) GTEST_SKIP() << "this kernel has no seccomp filters";
    LoopOptions options = options_with(PollerKind::epoll, log);
    options.wait = Wait::event;
    Loop loop(std::move(options));
    loop.run([](Loop& self) -> Task<void> {
      const Time start = self.now();
      co_await self.sleep(std::chrono::milliseconds(5));
      EXPECT_GE(self.now() - start, std::chrono::milliseconds(5));
    }(loop));
  }).join();
}

}  // namespace
}  // namespace hawser::exec
