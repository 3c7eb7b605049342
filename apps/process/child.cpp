#include "process/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

namespace hawser::process {
namespace {

constexpr double grace_s = 1;
constexpr std::chrono::milliseconds reap_interval(2);

[[noreturn]] void run_child(const std::string& name, const std::function<int(int)>& body, int descriptor,
                            pid_t parent) {
  // The child dies with its parent, however the parent ends. The parent may have ended already.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  prctl(PR_SET_NAME, name.c_str());
  // The terminal sends SIGINT to the whole process group, but the parent ends its children.
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  int status = 1;
  try {
    status = body(descriptor);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, name.c_str(), error.what());
  }
  _exit(status);
}

}  // namespace

Child::Child(std::string name, const std::function<int(int)>& body) : name_(std::move(name)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    close(ends[0]);
    close(ends[1]);
    throw std::runtime_error(std::string("cannot start a process: ") + std::strerror(errno));
  }
  if (pid_ == 0) {
    close(ends[0]);
    run_child(name_, body, ends[1], parent);
  }
  close(ends[1]);
  descriptor_ = ends[0];
  fcntl(descriptor_, F_SETFL, O_NONBLOCK);
}

Child::~Child() {
  end();
  close(descriptor_);
}

void Child::read_more() {
  char chunk[4096];
  while (!closed_) {
    const ssize_t count = read(descriptor_, chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      closed_ = true;
      return;
    }
    buffer_.append(chunk, static_cast<std::size_t>(count));
  }
}

std::optional<std::string> Child::next_line() {
  read_more();
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    if (closed_) buffer_.clear();  // The child ended within a line.
    return std::nullopt;
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

bool Child::reap() {
  if (pid_ < 0) return true;
  int status = 0;
  rusage used{};
  const pid_t ended = wait4(pid_, &status, WNOHANG, &used);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  pid_ = -1;
  memory_bytes_max_ = static_cast<std::size_t>(used.ru_maxrss) * 1024;
  if (ended > 0 && WIFSIGNALED(status)) {
    how_ = std::string("signal ") + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
  } else {
    how_ = "exit status " + std::to_string(WEXITSTATUS(status));
    succeeded_ = ended > 0 && WEXITSTATUS(status) == 0;
  }
  return true;
}

bool Child::wait(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!reap()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(reap_interval);
  }
  return true;
}

void Child::end() {
  if (reap()) return;
  kill(pid_, SIGTERM);
  if (wait(grace_s)) return;
  kill(pid_, SIGKILL);
  while (!wait(grace_s)) continue;
}

}  // namespace hawser::process
