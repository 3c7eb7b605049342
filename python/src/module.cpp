#include <nanobind/nanobind.h>

#include "client.h"
#include "convert.h"
#include "engine.h"
#include "memory.h"
#include "method.h"
#include "references.h"
#include "server.h"
#include "streams.h"
#include "tensor_memory.h"

// The part of the Python package `hawser` that is compiled. Not for users: hawser/*.py are.
NB_MODULE(_hawser, module) {
  namespace python = hawser::python;
  // Calls in flight at the end of the interpreter keep their objects.
  nanobind::set_leak_warnings(false);
  python::bind_convert(module);
  python::bind_method(module);
  python::bind_streams(module);
  python::bind_client(module);
  python::bind_server(module);
  python::bind_memory(module);
  python::bind_tensor_memory(module);
  module.def("shut_down", [] {
    const nanobind::gil_scoped_release release;
    python::Engine::shut_down();
    python::keep_left_references();
  });
}
