#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "base/descriptor.h"
#include "transport/shm/process_mark.h"

namespace hawser::transport::shm {

// Threads for operations that a peer can block: reads of its memory, which may be backed by a file system that never
// answers, and closing descriptors that it has sent. There are few threads and nobody waits for them. A thread that is
// blocked is not available until the operation returns. Any thread may use this class.
class Helpers {
 public:
  static constexpr std::size_t threads_max = 4;
  static constexpr std::size_t threads_of_peer_max = 2;  // Limit for one peer process.
  static constexpr std::size_t idle_seconds = 10;        // Idle time after which a thread ends.
  static constexpr std::size_t disposals_max = 64;

  Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;
  // Threads that are working end by themselves.
  ~Helpers();

  // False in a child of the process that made this. The child must make its own; this one does nothing there.
  bool is_ours() const noexcept { return mark_.is_ours(); }
  // Runs `work` on a thread at once, on behalf of process `peer`. False if no thread is free; then nothing runs. `work`
  // must not throw, and keeps alive what it uses.
  bool start(pid_t peer, std::function<void()> work);
  // Closes a descriptor that a peer has sent. Closing may wait for the file system of the descriptor.
  void dispose(Descriptor descriptor);
  // Closes a stream socket whose peer may have sent descriptors that nobody has received. Closing it closes these
  // descriptors.
  void dispose_socket(Descriptor socket);
  // True if peers may send descriptors. False if too many wait to be closed.
  bool may_receive() const;

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state);
  static void close_all(const std::shared_ptr<State>& state);

  const ProcessMark mark_;
  std::shared_ptr<State> state_;
};

}  // namespace hawser::transport::shm
