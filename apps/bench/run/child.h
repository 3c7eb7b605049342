#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace hawser::bench {

// A forked process that tells of itself in lines on a pipe. It does not outlive this object, nor this process.
class Child {
 public:
  // Runs `body` in a new process, which ends with what it returns as exit status. `body` gets the end of the pipe that
  // it writes to. This process must have no other threads. `name` is what ps shows, at most 15 characters.
  Child(std::string name, const std::function<int(int descriptor)>& body);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // Readable when there are lines, and when the child has ended.
  int descriptor() const noexcept { return descriptor_; }
  // Takes what has come without waiting: nothing when there is no whole line.
  std::optional<std::string> next_line();
  // Every line has been taken and no more will come, since the child has closed its end, which it does when it ends.
  bool at_end() const noexcept { return closed_ && buffer_.empty(); }

  // Asks it to end, and kills it when it does not within a second. Afterwards it is reaped.
  void end();
  // Waits until it has ended by itself, at most `seconds`. False if it has not.
  bool wait(double seconds);

  // How it ended, once it is reaped: "exit status 1", "signal 9 (Killed)".
  const std::string& how_it_ended() const noexcept { return how_; }
  bool succeeded() const noexcept { return succeeded_; }
  std::size_t memory_bytes_max() const noexcept { return memory_bytes_max_; }
  const std::string& name() const noexcept { return name_; }
  pid_t pid() const noexcept { return pid_; }  // -1 once it is reaped.

 private:
  bool reap();
  void read_more();

  std::string name_;
  pid_t pid_ = -1;  // -1 once it is reaped.
  int descriptor_ = -1;
  bool closed_ = false;
  std::string buffer_;
  std::string how_;
  bool succeeded_ = false;
  std::size_t memory_bytes_max_ = 0;
};

}  // namespace hawser::bench
