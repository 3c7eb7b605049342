#include "tests/rdma/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace hawser::rdma_tests {
namespace {

std::string read_line(int from) {
  std::string line;
  for (char c = 0;;) {
    const ssize_t count = ::read(from, &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || c == '\n') return line;
    line += c;
  }
}

void write_line(int to, const std::string& line) {
  const std::string whole = line + "\n";
  for (std::size_t done = 0; done < whole.size();) {
    const ssize_t count = ::write(to, whole.data() + done, whole.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // The other process has ended. It is noticed elsewhere.
    done += static_cast<std::size_t>(count);
  }
}

std::pair<int, int> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  return {ends[0], ends[1]};
}

}  // namespace

Child::Child(const std::function<void(Say, Hear)>& work) {
  const auto [from, child_to] = make_pipe();
  const auto [child_from, to] = make_pipe();
  process_ = ::fork();
  if (process_ < 0) throw std::runtime_error("no process");
  if (process_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::signal(SIGPIPE, SIG_IGN);
    ::close(from);
    ::close(to);
    work([out = child_to](const std::string& line) { write_line(out, line); },
         [in = child_from] { return read_line(in); });
    ::_exit(0);
  }
  ::close(child_to);
  ::close(child_from);
  from_ = from;
  to_ = to;
}

Child::~Child() {
  kill();
  ::close(from_);
  ::close(to_);
}

std::string Child::hear() { return read_line(from_); }

void Child::say(const std::string& line) { write_line(to_, line); }

void Child::kill() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

}  // namespace hawser::rdma_tests
