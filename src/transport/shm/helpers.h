#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "base/descriptor.h"
#include "transport/shm/process_mark.h"

namespace hawser::transport::shm {

// Threads for what a peer can make hang: reads of its memory, which may be backed by a file system that never answers,
// and closing descriptors that it has sent. They are few, nobody waits for them, and one that hangs is lost until it
// comes back. Any thread.
class Helpers {
 public:
  static constexpr std::size_t threads_max = 4;
  static constexpr std::size_t threads_of_peer_max = 2;  // For one process at the other end.
  static constexpr std::size_t idle_seconds = 10;        // After which a thread ends.
  static constexpr std::size_t disposals_max = 64;

  Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;
  // Threads that are at work end by themselves.
  ~Helpers();

  // False in a child of the process that made this: there nothing is done, and another one is needed.
  bool is_ours() const noexcept { return mark_.is_ours(); }
  // Runs `work` on a thread at once, on behalf of process `peer`. False if none is free: then nothing is done. `work`
  // must not throw, and keeps what it uses.
  bool start(pid_t peer, std::function<void()> work);
  // Closes a descriptor that a peer has sent. Closing may wait for the file system that it comes from.
  void dispose(Descriptor descriptor);
  // Closes a stream socket whose peer may have sent descriptors that nobody has received: closing it closes these.
  void dispose_socket(Descriptor socket);
  // Whether peers may send descriptors: too many wait to be closed.
  bool may_receive() const;

 private:
  struct State;
  static void serve(const std::shared_ptr<State>& state);
  static void close_all(const std::shared_ptr<State>& state);

  const ProcessMark mark_;
  std::shared_ptr<State> state_;
};

}  // namespace hawser::transport::shm
