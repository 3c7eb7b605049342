#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

namespace hawser::process {

// A forked process that reports in lines on a pipe. It does not outlive this object or this process.
class Child {
 public:
  // Runs `body` in a new process, whose exit status is the result of `body`. `body` receives the writing end of the
  // pipe. This process must have no other threads. `name` is the name that ps shows, at most 15 characters.
  Child(std::string name, const std::function<int(int descriptor)>& body);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // Readable when there are lines, and after the child has ended.
  int descriptor() const noexcept { return descriptor_; }
  // Returns the next line without waiting: nothing if there is no complete line.
  std::optional<std::string> next_line();
  // Returns whether all lines have been read and the child has closed its end, as it does when it ends.
  bool at_end() const noexcept { return closed_ && buffer_.empty(); }

  // Asks the child to end, and kills it if it has not ended within a second. The child is reaped afterwards.
  void end();
  // Waits at most `seconds` until the child has ended by itself. Returns false if it has not.
  bool wait(double seconds);

  // Returns how the child ended, after it has been reaped: "exit status 1", "signal 9 (Killed)".
  const std::string& how_it_ended() const noexcept { return how_; }
  bool succeeded() const noexcept { return succeeded_; }
  std::size_t memory_bytes_max() const noexcept { return memory_bytes_max_; }
  const std::string& name() const noexcept { return name_; }
  pid_t pid() const noexcept { return pid_; }  // -1 after it has been reaped.

 private:
  bool reap();
  void read_more();

  std::string name_;
  pid_t pid_ = -1;  // -1 after it has been reaped.
  int descriptor_ = -1;
  bool closed_ = false;
  std::string buffer_;
  std::string how_;
  bool succeeded_ = false;
  std::size_t memory_bytes_max_ = 0;
};

}  // namespace hawser::process
