#pragma once

#include <Python.h>

#include <memory>
#include <mutex>
#include <vector>

// Hands what loops have finished to one thread of Python.
namespace hawser::python {

// Something for Python. Made on a loop, delivered with the GIL.
class Event {
 public:
  virtual ~Event() = default;
  // On false a Python exception is set. The hub reports it as unraisable, but raises KeyboardInterrupt and its like.
  virtual bool deliver() = 0;
};

// Queue of events with a descriptor (eventfd) that is readable while there are events. asyncio watches the descriptor,
// so that a batch of events costs one wake-up. push(): any thread, without the GIL.
class Hub : public std::enable_shared_from_this<Hub> {
 public:
  // Throws std::system_error.
  Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub();

  int descriptor() const noexcept { return descriptor_; }
  void push(std::shared_ptr<Event> event) noexcept;
  // Delivers all events. With the GIL. On false a Python exception is set.
  bool drain();
  // Waits until there are events, for at most `timeout_ms`; -1: for ever. Without the GIL. Returns early on a signal.
  void wait(int timeout_ms) const noexcept;

 private:
  const int descriptor_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Event>> events_;
};

}  // namespace hawser::python
