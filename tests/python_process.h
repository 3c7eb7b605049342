#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

namespace hawser::testing_tools {

// A script of Python that runs beside the test. Its standard output and its errors are read as one text.
class PythonProcess {
 public:
  // `arguments` are those of a shell.
  PythonProcess(const std::filesystem::path& script, const std::string& arguments)
      : pipe_(popen(("exec /usr/bin/python3 -B '" + script.string() + "' " + arguments + " 2>&1").c_str(), "r")) {}
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;
  // Ends a script that listens, and waits for its end.
  ~PythonProcess() {
    if (process_ > 0) kill(process_, SIGTERM);
    if (pipe_ != nullptr) pclose(pipe_);
  }
  // A script that listens prints its process and its port first. Returns the port; 0 if it has printed something else,
  // which output has.
  int listening_port() {
    output = line();
    int port = 0;
    return std::sscanf(output.c_str(), "%d %d", &process_, &port) == 2 ? port : 0;
  }
  // Returns the next line, or nothing at the end.
  std::string line() {
    std::array<char, 4096> text{};
    return std::fgets(text.data(), text.size(), pipe_) == nullptr ? std::string() : std::string(text.data());
  }
  // The exit status of a script for which a package is missing; output names it.
  static constexpr int skipped = 77;
  // Waits for the end. Returns the exit status, -1 if a signal has ended it.
  int wait() {
    for (std::string next = line(); !next.empty(); next = line()) output += next;
    const int status = pclose(std::exchange(pipe_, nullptr));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string output;  // Filled by listening_port() and wait().

 private:
  FILE* pipe_;
  int process_ = 0;
};

}  // namespace hawser::testing_tools
