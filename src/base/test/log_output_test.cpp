#include "base/log_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "base/descriptor.h"
#include "base/temporary_folder.h"
#include "base/write_signals.h"
#include "hawser/log.h"

namespace hawser {
namespace {

std::string notice_of_lost(std::uint64_t lost) { return std::to_string(lost) + " lost\n"; }

struct PipeOfLog {
  PipeOfLog() { EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0); }
  ~PipeOfLog() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  void close_reader() {
    close(ends[0]);
    ends[0] = -1;
  }
  void fill() {
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const std::string page(4096, '.');
    while (write(ends[1], page.data(), page.size()) > 0) {
    }
    fcntl(ends[1], F_SETFL, 0);
  }
  // All that is in the pipe, without the filling.
  std::string read_all() {
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 4096> part;
    for (ssize_t size = 0; (size = read(ends[0], part.data(), part.size())) > 0;) {
      text.append(part.data(), static_cast<std::size_t>(size));
    }
    std::erase(text, '.');
    return text;
  }
  std::array<int, 2> ends{-1, -1};
};

// A signal with its default action would end this process.
TEST(LineOutput, AReaderThatHasGoneRaisesNoSignal) {
  const auto before = signal(SIGPIPE, SIG_DFL);
  PipeOfLog pipe;
  pipe.close_reader();
  LineOutput to_pipe(pipe.ends[1]);
  to_pipe.write("line\n", notice_of_lost);
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  close(sockets[0]);
  LineOutput to_socket(sockets[1]);
  to_socket.write("line\n", notice_of_lost);
  close(sockets[1]);
  to_socket.write("line\n", notice_of_lost);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  signal(SIGPIPE, before);
}

TEST(LineOutput, TheDefaultLogRaisesNoSignal) {
  const auto before = signal(SIGPIPE, SIG_DFL);
  PipeOfLog pipe;
  pipe.close_reader();
  const int kept = dup(STDERR_FILENO);
  dup2(pipe.ends[1], STDERR_FILENO);
  stderr_log()(LogLevel::error, "rpc", "nobody reads this");
  dup2(kept, STDERR_FILENO);
  close(kept);
  signal(SIGPIPE, before);
}

TEST(LineOutput, AFileAboveItsLimitRaisesNoSignal) {
  const auto before = signal(SIGXFSZ, SIG_DFL);
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{2, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::size_t taken = write_ready(fileno(file), "long line\n");
  const std::size_t more = write_ready(fileno(file), "x");
  const int error = errno;
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_EQ(taken, 2U);
  EXPECT_EQ(more, 0U);
  EXPECT_EQ(error, EFBIG);
  std::fclose(file);
  signal(SIGXFSZ, before);
}

// A signal of the application itself still arrives.
TEST(LineOutput, ASignalThatWasPendingStaysPending) {
  sigset_t pipes;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, &pipes, &mask);
  raise(SIGPIPE);
  PipeOfLog pipe;
  pipe.close_reader();
  LineOutput(pipe.ends[1]).write("line\n", notice_of_lost);
  int arrived = 0;
  sigset_t pending;
  sigpending(&pending);
  ASSERT_EQ(sigismember(&pending, SIGPIPE), 1);
  sigwait(&pipes, &arrived);
  EXPECT_EQ(arrived, SIGPIPE);
  // The mask is that of the application.
  LineOutput(pipe.ends[1]).write("line\n", notice_of_lost);
  sigset_t now;
  pthread_sigmask(SIG_SETMASK, &mask, &now);
  EXPECT_EQ(sigismember(&now, SIGPIPE), 1);
  EXPECT_EQ(sigismember(&now, SIGXFSZ), 0);
}

// A call that waits for the reader would hang here.
TEST(LineOutput, AFullPipeLosesLinesAndCountsThem) {
  PipeOfLog pipe;
  LineOutput output(pipe.ends[1]);
  output.write("first\n", notice_of_lost);
  pipe.fill();
  for (int i = 0; i < 3; ++i) output.write("lost\n", notice_of_lost);
  EXPECT_EQ(pipe.read_all(), "first\n");
  output.write("next\n", notice_of_lost);
  output.write("last\n", notice_of_lost);
  EXPECT_EQ(pipe.read_all(), "3 lost\nnext\nlast\n");
}

TEST(LineOutput, ALineOfWhichAPartWasTakenEndsBeforeTheNext) {
  PipeOfLog pipe;
  // Before Linux 6.5 a pipe is writable while one of its pages is empty.
  ASSERT_GE(fcntl(pipe.ends[1], F_SETPIPE_SZ, 8192), 8192);
  LineOutput output(pipe.ends[1]);
  output.write(std::string(100'000, 'x') + "\n", notice_of_lost);
  const std::string part = pipe.read_all();
  EXPECT_FALSE(part.empty());
  EXPECT_EQ(part.find('\n'), std::string::npos);
  output.write("next\n", notice_of_lost);
  EXPECT_EQ(pipe.read_all(), "\n1 lost\nnext\n");
}

TEST(LineOutput, AFullSocketLosesLinesToo) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
  LineOutput output(sockets[1]);
  const std::string line(1000, 'y');
  for (int i = 0; i < 10'000; ++i) output.write(line, notice_of_lost);
  EXPECT_LT(write_ready(sockets[1], line), line.size());
  close(sockets[0]);
  close(sockets[1]);
}

TEST(LineOutput, AFullDiskLosesLines) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  EXPECT_EQ(write_ready(full, "line\n"), 0U);
  EXPECT_EQ(errno, ENOSPC);
  close(full);
  EXPECT_EQ(write_ready(full, "line\n"), 0U);
}

// An address has room for 107 characters of a path and its end.
TEST(DatagramSender, APathOfTheLongestAddressIsUsedAndALongerOneIsRefused) {
  const TemporaryFolder folder;
  std::string path = folder.path().string() + "/";
  ASSERT_LT(path.size(), 100U);
  path.resize(107, 'x');
  const Descriptor receiver(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(::bind(receiver.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << errno;

  const Result<DatagramSender> sender = DatagramSender::to(path);
  ASSERT_TRUE(sender.has_value()) << sender.error().text;
  EXPECT_TRUE(sender->send("a line"));
  std::array<char, 16> line{};
  EXPECT_EQ(::recv(receiver.get(), line.data(), line.size(), MSG_DONTWAIT), 6);
  EXPECT_STREQ(line.data(), "a line");

  for (const std::string& refused : {path + "x", std::string()}) {
    const Result<DatagramSender> none = DatagramSender::to(refused);
    ASSERT_FALSE(none.has_value()) << refused;
    EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(none.error().text,
              "path of the journal's socket has " + std::to_string(refused.size()) + " bytes: give 1 to 107");
  }
}

}  // namespace
}  // namespace hawser
