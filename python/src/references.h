#pragma once

#include <Python.h>

#include <mutex>
#include <utility>
#include <vector>

#include "hawser/bytes.h"

// References to Python objects that threads without the interpreter's lock (GIL) hold and may drop.
namespace hawser::python {

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

// Memory of a Python object that has the buffer protocol. Any thread may read it. The memory does not move until this
// object is destroyed.
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
