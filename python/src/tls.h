#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace hawser::transport {
class ClientSecurity;
class ServerSecurity;
}  // namespace hawser::transport

namespace hawser::python {

namespace nb = nanobind;

// TLS by an object of hawser.ClientTls or hawser.ServerTls. Null for None. Throw exceptions of Python.
std::shared_ptr<transport::ClientSecurity> client_security(nb::handle options);
std::shared_ptr<transport::ServerSecurity> server_security(nb::handle options);

}  // namespace hawser::python
