#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>

namespace hawser::testing_tools {

// A port that was free a moment ago, for programs that do not report one that the kernel has chosen. It lies below
// those that Linux chooses by default (from 32,768), so that no other test gets it from the kernel. It is not one that
// this process has had before: its program may not listen yet. One thread.
inline std::string free_port() {
  static std::set<int> had;
  std::random_device random;
  std::uniform_int_distribution<int> ports(12'000, 32'000);
  for (int tries = 0; tries < 100; ++tries) {
    const int port = ports(random);
    if (!had.insert(port).second) continue;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(fd);
    if (bound) return std::to_string(port);
  }
  return {};
}

// A program that runs beside the test and writes to a file. It ends with the test.
class ChildProgram {
 public:
  ChildProgram() = default;
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;
  ~ChildProgram() { kill_now(); }

  // Starts a command of the shell. Its output is added to the file.
  void start(const std::string& command, std::string output_file) {
    kill_now();
    output_file_ = std::move(output_file);
    const std::string whole = "exec " + command + " >> '" + output_file_ + "' 2>&1";
    const pid_t parent = getpid();
    child_ = fork();
    if (child_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    execl("/bin/sh", "sh", "-c", whole.c_str(), nullptr);
    _exit(127);
  }
  // Ends it as kill -9 does, and waits for the end.
  void kill_now() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    waitpid(std::exchange(child_, 0), nullptr, 0);
  }
  void signal(int number) const { ::kill(child_, number); }
  // It has ended by itself, or was not started.
  bool ended() {
    if (child_ > 0 && waitpid(child_, nullptr, WNOHANG) == child_) child_ = 0;
    return child_ <= 0;
  }
  std::string output() const {
    std::ifstream file(output_file_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  pid_t child_ = 0;
  std::string output_file_;
};

}  // namespace hawser::testing_tools
