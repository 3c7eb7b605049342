// Programs of users that run without standard descriptors, as some service managers and shells start them. No file and
// no socket of the library becomes one: what the program prints would reach it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "tests/testing.h"

namespace hawser::descriptor_tests {

std::string echo(std::string_view text);
std::string echo(std::string_view text) { return std::string(text); }

namespace {

// The system gives the lowest number, which the library then gives up for a higher one. A thread of the server may be
// about to.
bool all_closed() {
  return testing_tools::soon([] {
    for (const int fd : {0, 1, 2}) {
      if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) return false;
    }
    return true;
  });
}

// Returns 0, or the line that was not true.
int serve_and_call(PollerKind poller, const std::string& listen, bool shared_memory) {
  for (const int fd : {0, 1, 2}) close(fd);
  ServerOptions options;
  options.listen = listen;
  options.loop.poller = poller;
  options.threads = 2;
  if (shared_memory) options.transports.enable(shm());
  Server server(options);
  server.register_handler<echo>();
  if (!server.start()) return __LINE__;
  if (!all_closed()) return __LINE__;
  ClientOptions client_options;
  if (shared_memory) client_options.transports = {.enabled = {shm()}, .required = "shm"};
  LoopOptions loop_options;
  loop_options.poller = poller;
  loop_options.log = no_log();
  Loop loop(loop_options);
  int wrong = 0;
  const auto calls = [&]() -> Task<void> {
    for (int i = 0; i < 8 && wrong == 0; ++i) {
      Client client(loop, client_options);
      auto connected = co_await client.connect(server.address());
      if (!connected) wrong = __LINE__;
      const std::string text(i % 2 == 0 ? 10 : 3'000'000, 'x');
      auto reply = co_await client.call<echo>(text);
      if (!reply || *reply != text) wrong = __LINE__;
      if (!all_closed()) wrong = __LINE__;
    }
  };
  loop.run(calls());
  server.stop();
  if (wrong == 0 && !all_closed()) wrong = __LINE__;
  return wrong;
}

int in_child(PollerKind poller, const std::string& listen, bool shared_memory) {
  const pid_t child = fork();
  if (child == 0) {
    const int line = serve_and_call(poller, listen, shared_memory);
    _exit(line % 256 == 0 && line != 0 ? 255 : line % 256);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(StandardDescriptors, StayClosedWithTcp) {
  EXPECT_EQ(in_child(PollerKind::epoll, "127.0.0.1:0", false), 0);
  EXPECT_EQ(in_child(PollerKind::automatic, "127.0.0.1:0", false), 0);
}

TEST(StandardDescriptors, StayClosedWithEveryAddressOfAHost) {
  EXPECT_EQ(in_child(PollerKind::automatic, "*:0", false), 0);
}

TEST(StandardDescriptors, StayClosedWithUnixSocketsAndSharedMemory) {
  const std::string name = "unix:@hawser-descriptors-" + std::to_string(getpid());
  EXPECT_EQ(in_child(PollerKind::epoll, name, true), 0);
  EXPECT_EQ(in_child(PollerKind::automatic, name, true), 0);
}

}  // namespace
}  // namespace hawser::descriptor_tests
