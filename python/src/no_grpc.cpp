// In place of grpc_peers.cpp if the library was built without the component grpc.
#include <nanobind/nanobind.h>

#include "grpc_peers.h"

namespace hawser::python {
namespace {

[[noreturn]] void refuse_grpc() {
  PyErr_SetString(
      PyExc_NotImplementedError,
      "hawser: this package was built without gRPC: install libnghttp2, zlib and libzstd with their headers "
      "and build it again");
  throw nanobind::python_error();
}

}  // namespace

ClientOptions grpc_client_options(const ClientOptions&) { refuse_grpc(); }
void serve_grpc(Server&, std::size_t) { refuse_grpc(); }

}  // namespace hawser::python
