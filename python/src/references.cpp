#include "references.h"

#include <pthread.h>
#include <unistd.h>

#include "tensor_memory.h"

namespace hawser::python {
namespace {

// References of threads without the GIL, until a thread with the GIL drops them.
struct LeftReferences {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  bool kept_for_ever = false;  // The interpreter ends: nothing is dropped any more.
};
// Never destroyed: threads may leave references until the process ends. A child of fork() has a new one: a thread of
// the parent may hold the mutex.
LeftReferences* left_references = new LeftReferences();
const int fork_handler = pthread_atfork(nullptr, nullptr, [] { left_references = new LeftReferences(); });

}  // namespace

void wait_for_the_end_of_the_process() noexcept {
  for (;;) pause();
}

void drop_left_references() noexcept {
  static_cast<void>(fork_handler);
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(left_references->mutex);
    objects.swap(left_references->objects);
  }
  for (PyObject* object : objects) Py_DECREF(object);
}

void keep_left_references() noexcept {
  const std::lock_guard lock(left_references->mutex);
  left_references->kept_for_ever = true;
}

void Reference::reset() noexcept {
  PyObject* const object = std::exchange(object_, nullptr);
  if (object == nullptr) return;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    Py_DECREF(object);
    return;
  }
  const std::lock_guard lock(left_references->mutex);
  if (!left_references->kept_for_ever) left_references->objects.push_back(object);
}

bool BorrowedMemory::acquire(PyObject* given, int flags) {
  PyObject* object = given;
  Reference tensor;
  if (PyObject_CheckBuffer(given) == 0 && is_tensor(given)) {
    tensor = Reference(tensor_memory(given));
    if (!tensor) return false;
    object = tensor.get();
  }
  // A memoryview of a type that is not contiguous is refused here with the exception of its exporter.
  Py_buffer buffer;
  if (PyObject_GetBuffer(object, &buffer, flags) != 0) return false;
  PyBuffer_Release(&buffer);
  Reference view(PyMemoryView_FromObject(object));
  if (!view) return false;
  const Py_buffer* const seen = PyMemoryView_GET_BUFFER(view.get());
  bytes_ = MutableBytes(static_cast<std::byte*>(seen->buf), static_cast<std::size_t>(seen->len));
  view_ = std::move(view);
  return true;
}

}  // namespace hawser::python
