#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace hawser::rdma_tests {

// Another process, which runs a function until it is killed. To be made before this process has threads or RDMA
// objects.
class Child {
 public:
  // Says a line to its parent; "" ends it.
  using Say = std::function<void(const std::string&)>;
  // Hears a line from its parent; waits for it.
  using Hear = std::function<std::string()>;

  explicit Child(const std::function<void(Say, Hear)>& work);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  // The next line that it says; empty if it has ended.
  std::string hear();
  void say(const std::string& line);
  // With SIGKILL; returns when it is gone.
  void kill();

 private:
  pid_t process_ = -1;
  int from_ = -1;
  int to_ = -1;
};

}  // namespace hawser::rdma_tests
