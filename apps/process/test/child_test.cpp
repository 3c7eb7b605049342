#include "process/child.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <string_view>
#include <vector>

namespace hawser::process {
namespace {

constexpr int timeout_ms = 10'000;

void say(int descriptor, std::string_view text) {
  EXPECT_EQ(write(descriptor, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::vector<std::string> lines_until_end(Child& child) {
  std::vector<std::string> lines;
  while (!child.at_end()) {
    while (const auto line = child.next_line()) lines.push_back(*line);
    pollfd readable{child.descriptor(), POLLIN, 0};
    if (!child.at_end() && poll(&readable, 1, timeout_ms) == 0) break;
  }
  return lines;
}

TEST(Child, TellsLinesAndEnds) {
  Child child("test", [](int descriptor) {
    say(descriptor, "one\ntw");
    say(descriptor, "o\ncut short");
    return 0;
  });
  EXPECT_EQ(lines_until_end(child), (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(child.wait(10));
  EXPECT_TRUE(child.succeeded());
  EXPECT_EQ(child.how_it_ended(), "exit status 0");
  EXPECT_GT(child.memory_bytes_max(), 0u);
}

TEST(Child, SaysHowItFailed) {
  Child child("test", [](int) { return 3; });
  EXPECT_TRUE(child.wait(10));
  EXPECT_FALSE(child.succeeded());
  EXPECT_EQ(child.how_it_ended(), "exit status 3");
}

TEST(Child, TurnsAnExceptionIntoAFailure) {
  Child child("test", [](int) -> int { throw std::runtime_error("on purpose"); });
  EXPECT_TRUE(child.wait(10));
  EXPECT_FALSE(child.succeeded());
}

TEST(Child, EndsWhenAsked) {
  Child child("test", [](int) { return pause(); });
  EXPECT_FALSE(child.wait(0.02));
  child.end();
  EXPECT_EQ(child.how_it_ended(), "signal 15 (Terminated)");
}

TEST(Child, IsKilledWhenItWillNotEnd) {
  Child child("test", [](int descriptor) {
    signal(SIGTERM, SIG_IGN);
    say(descriptor, "deaf\n");
    while (true) pause();
    return 0;
  });
  pollfd readable{child.descriptor(), POLLIN, 0};
  poll(&readable, 1, timeout_ms);
  child.end();
  EXPECT_EQ(child.how_it_ended(), "signal 9 (Killed)");
}

}  // namespace
}  // namespace hawser::process
