#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "hawser/server.h"
#include "tests/testing.h"

// A program calls daemon() after it has started a server: the threads of the server end with the parent.
namespace hawser::daemon_after_start {

using namespace testing_tools;

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  int ends[2] = {-1, -1};
};

// Starts a server, forks as daemon() does, and calls `use` in the child when the parent has ended and was waited for.
// Returns what the child wrote to its standard error.
template <class Use>
std::string after_daemon(Use use) {
  const Pipe text;
  const Pipe parent_ended;
  const pid_t parent = fork();
  if (parent == 0) {
    Server server({.listen = "127.0.0.1:0", .loop = {.log = no_log()}});
    if (!server.start()) _exit(1);
    const pid_t child = fork();
    if (child != 0) _exit(child > 0 ? 0 : 2);
    dup2(text.ends[1], STDERR_FILENO);
    close(text.ends[1]);
    close(parent_ended.ends[1]);
    char byte = 0;
    if (read(parent_ended.ends[0], &byte, 1) != 0) _exit(3);
    use(server);
    _exit(0);
  }
  close(text.ends[1]);
  close(parent_ended.ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  close(parent_ended.ends[1]);
  std::string all;
  for (char bytes[256];;) {
    const ssize_t count = read(text.ends[0], bytes, sizeof bytes);
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    if (count > 0) all.append(bytes, static_cast<std::size_t>(count));
  }
  close(text.ends[0]);
  return all;
}

constexpr const char* remedy = "Call daemon() or fork() before Server::start()";

TEST(DaemonDeathTest, AServerIsUsedThatHasEndedWithTheParent) {
  const auto expect_text = [](const std::string& text) { EXPECT_NE(text.find(remedy), std::string::npos) << text; };
  expect_text(after_daemon([](Server& server) { server.stop(); }));
  expect_text(after_daemon([](Server& server) { static_cast<void>(server.counters()); }));
  expect_text(after_daemon([](Server& server) { static_cast<void>(server.loops()); }));
}

TEST(DaemonDeathTest, AServerIsStartedAgain) {
  const std::string text = after_daemon([](Server& server) {
    const std::string error = error_of(server.start());
    static_cast<void>(!write(STDERR_FILENO, error.data(), error.size()));
  });
  EXPECT_NE(text.find("call daemon() or fork() before start()"), std::string::npos) << text;
}

// The destructor runs in every child that ends by exit(), also after a parent that has ended.
TEST(DaemonDeathTest, AServerIsDestroyed) {
  EXPECT_EQ(after_daemon([](Server& server) { server.~Server(); }), "");
}

// daemon() begins a session. A server that the daemon only destroys has served nothing: a line says so. Other children
// begin sessions as well, and the destructor runs within their exit(): the process goes on.
TEST(DaemonDeathTest, AServerIsDestroyedByADaemon) {
  const std::string text = after_daemon([](Server& server) {
    setsid();
    server.~Server();
    static_cast<void>(!write(STDERR_FILENO, "goes on", 7));
  });
  EXPECT_NE(text.find(remedy), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\ngoes on")) << text;
}

}  // namespace hawser::daemon_after_start
