#pragma once

#include <nanobind/nanobind.h>

// Memory of tensors by the protocol DLPack, whose structures are at https://dmlc.github.io/dlpack/latest/c_api.html.
namespace hawser::python {

namespace nb = nanobind;

// True if the object has the methods of the protocol. With the GIL, as the functions below.
bool is_tensor(PyObject* object) noexcept;

// An object with the buffer protocol whose bytes are the elements of the tensor, which it keeps. Null with an exception
// of Python if the memory is not that of a processor, or its elements do not lie one after another.
PyObject* tensor_memory(PyObject* tensor) noexcept;

void bind_tensor_memory(nb::module_& module);

}  // namespace hawser::python
