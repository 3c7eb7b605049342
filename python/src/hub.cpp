#include "hub.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "references.h"

namespace hawser::python {
namespace {

int make_descriptor() {
  const int made = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made < 0) throw std::system_error(errno, std::generic_category(), "hawser: no descriptor for a queue (eventfd)");
  return made;
}

}  // namespace

Hub::Hub() : descriptor_(make_descriptor()) {}
Hub::~Hub() { close(descriptor_); }

void Hub::push(std::shared_ptr<Event> event) noexcept {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = events_.empty();
    events_.push_back(std::move(event));
  }
  const std::uint64_t one = 1;
  // The counter of an eventfd takes far more than the one that is written here before each drain().
  if (first && write(descriptor_, &one, sizeof(one)) < 0) return;
}

bool Hub::drain() {
  std::uint64_t count = 0;
  if (read(descriptor_, &count, sizeof(count)) < 0 && errno != EAGAIN) return true;
  std::vector<std::shared_ptr<Event>> events;
  {
    const std::lock_guard lock(mutex_);
    events.swap(events_);
  }
  PyObject* type = nullptr;
  PyObject* error = nullptr;
  PyObject* trace = nullptr;
  for (std::shared_ptr<Event>& event : events) {
    if (!event->deliver()) {
      if (type != nullptr || PyErr_ExceptionMatches(PyExc_Exception) != 0) {
        PyErr_WriteUnraisable(nullptr);
      } else {
        PyErr_Fetch(&type, &error, &trace);  // Ctrl-C. The other events are delivered first.
      }
    }
    event.reset();
  }
  drop_left_references();
  if (type == nullptr) return true;
  PyErr_Restore(type, error, trace);
  return false;
}

void Hub::wait(int timeout_ms) const noexcept {
  pollfd watched{.fd = descriptor_, .events = POLLIN, .revents = 0};
  poll(&watched, 1, timeout_ms);
}

}  // namespace hawser::python
