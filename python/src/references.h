#pragma once

#include <Python.h>
#include <cxxabi.h>

#include <mutex>
#include <utility>
#include <vector>

#include "hawser/bytes.h"

// References to Python objects that threads without the interpreter's lock (GIL) hold and may drop.
namespace hawser::python {

[[noreturn]] void wait_for_the_end_of_the_process() noexcept;

// Runs `work`, which may take the GIL, and returns its result. When an interpreter has ended, CPython before 3.14 ends
// a thread that takes the GIL by pthread_exit(). This unwinds the stack, which is fatal in functions of C++ that are
// noexcept or catch everything. Here the thread waits for the end of the process, as it does with CPython 3.14.
template <class F>
auto with_interpreter(F&& work) {
  try {
    return work();
  } catch (abi::__forced_unwind&) {
    wait_for_the_end_of_the_process();
  }
}

// Drops the references that threads without the GIL have left behind. With the GIL.
void drop_left_references() noexcept;
// From now on nothing is dropped: the interpreter ends.
void keep_left_references() noexcept;

// Owns a reference. Moved and destroyed on any thread: without the GIL, the reference is left to
// drop_left_references().
class Reference {
 public:
  Reference() noexcept = default;
  // Takes ownership of one reference.
  explicit Reference(PyObject* owned) noexcept : object_(owned) {}
  static Reference borrow(PyObject* object) noexcept {
    Py_XINCREF(object);
    return Reference(object);
  }
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Reference() { reset(); }

  void reset() noexcept;
  PyObject* get() const noexcept { return object_; }
  PyObject* release() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Memory of a Python object that has the buffer protocol, or of a tensor (DLPack). Any thread may read it. The memory
// does not move until this object is destroyed.
class BorrowedMemory {
 public:
  BorrowedMemory() noexcept = default;
  BorrowedMemory(BorrowedMemory&&) noexcept = default;
  BorrowedMemory& operator=(BorrowedMemory&&) noexcept = default;
  ~BorrowedMemory() = default;

  // With the GIL. `flags` are those of PyObject_GetBuffer(). On false a Python exception is set.
  bool acquire(PyObject* object, int flags);

  Bytes bytes() const noexcept { return bytes_; }
  MutableBytes mutable_bytes() const noexcept { return bytes_; }
  PyObject* view() const noexcept { return view_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(view_); }

 private:
  Reference view_;  // A memoryview, which keeps the memory exported.
  MutableBytes bytes_;
};

}  // namespace hawser::python
