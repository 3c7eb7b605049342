// In place of tls.cpp where OpenSSL is absent.
#include <memory>

#include "tls.h"

namespace hawser::python {
namespace {

void refuse_tls(nb::handle options) {
  if (options.is_none()) return;
  PyErr_SetString(PyExc_NotImplementedError,
                  "hawser: this package was built without TLS: install OpenSSL 3 with its headers and build it again");
  throw nb::python_error();
}

}  // namespace

std::shared_ptr<transport::ClientSecurity> client_security(nb::handle options) {
  refuse_tls(options);
  return nullptr;
}

std::shared_ptr<transport::ServerSecurity> server_security(nb::handle options) {
  refuse_tls(options);
  return nullptr;
}

}  // namespace hawser::python
