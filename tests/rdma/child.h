#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace hawser::rdma_tests {

// Another process, which runs a function until it is killed. It must be created before this process has threads or RDMA
// objects.
class Child {
 public:
  // Sends a line to the parent. An empty line ends the conversation.
  using Say = std::function<void(const std::string&)>;
  // Receives a line from the parent; waits for it.
  using Hear = std::function<std::string()>;

  explicit Child(const std::function<void(Say, Hear)>& work);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // Returns the next line of the child; empty if it has ended.
  std::string hear();
  void say(const std::string& line);
  // Sends SIGKILL and returns when the process has ended.
  void kill();

 private:
  pid_t process_ = -1;
  int from_ = -1;
  int to_ = -1;
};

}  // namespace hawser::rdma_tests
