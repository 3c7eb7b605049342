#include "tls.h"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/tls.h"

namespace hawser::python {
namespace {

[[noreturn]] void wrong_type(const char* name, const char* expected, nb::handle given) {
  PyErr_Format(PyExc_TypeError, "hawser: %s is %s, not %s", name, expected, Py_TYPE(given.ptr())->tp_name);
  throw nb::python_error();
}

std::string text_of(nb::handle given, const char* name) {
  PyObject* converted = nullptr;
  if (PyUnicode_FSConverter(given.ptr(), &converted) == 0) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
    wrong_type(name, "a str or a path", given);
  }
  const nb::object bytes = nb::steal(converted);
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

std::string text(nb::handle options, const char* name) { return text_of(nb::object(options.attr(name)), name); }

std::vector<std::string> files(nb::handle options, const char* name) {
  const nb::object given = options.attr(name);
  if (PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr()) || PySequence_Check(given.ptr()) == 0) {
    wrong_type(name, "a sequence of files", given);
  }
  std::vector<std::string> made;
  for (const nb::handle one : given) made.push_back(text_of(one, name));
  return made;
}

bool flag(nb::handle options, const char* name) {
  const nb::object given = options.attr(name);
  if (!PyBool_Check(given.ptr())) wrong_type(name, "a bool", given);
  return given.ptr() == Py_True;
}

TlsCertificate certificate_of(nb::handle given) {
  return {.certificate_file = text(given, "certificate_file"),
          .key_file = text(given, "key_file"),
          .ocsp_file = text(given, "ocsp_file")};
}

TlsSharedKey shared_key_of(nb::handle given) { return {.name = text(given, "name"), .file = text(given, "file")}; }

// The value of an enumeration by its name.
template <class Value, std::size_t count>
Value choice(nb::handle options, const char* name, const std::array<std::pair<std::string_view, Value>, count>& known) {
  const std::string given = text(options, name);
  std::string names;
  for (const auto& [choice_name, value] : known) {
    if (choice_name == given) return value;
    names += (names.empty() ? "\"" : ", \"") + std::string(choice_name) + "\"";
  }
  throw nb::value_error(("hawser: " + std::string(name) + " is one of " + names + ", not \"" + given + "\"").c_str());
}

TlsProtection protection_of(nb::handle options) {
  constexpr std::array known{std::pair(std::string_view("authenticated"), TlsProtection::authenticated),
                             std::pair(std::string_view("signed_messages"), TlsProtection::signed_messages),
                             std::pair(std::string_view("sealed_messages"), TlsProtection::sealed_messages),
                             std::pair(std::string_view("encrypted_stream"), TlsProtection::encrypted_stream)};
  return choice(options, "protection", known);
}

}  // namespace

std::shared_ptr<transport::ClientSecurity> client_security(nb::handle options) {
  if (options.is_none()) return nullptr;
  TlsClientOptions made;
  made.ca_file = text(options, "ca_file");
  made.crl_files = files(options, "crl_files");
  made.ocsp_required = flag(options, "ocsp_required");
  const nb::object certificate = options.attr("certificate");
  if (!certificate.is_none()) made.certificate = certificate_of(certificate);
  const nb::object shared_key = options.attr("shared_key");
  if (!shared_key.is_none()) made.shared_key = shared_key_of(shared_key);
  made.server_name = text(options, "server_name");
  made.protection = protection_of(options);
  made.tls12 = flag(options, "tls12");
  made.accept_any_server = flag(options, "accept_any_server");
  return TlsClient(std::move(made));
}

std::shared_ptr<transport::ServerSecurity> server_security(nb::handle options) {
  if (options.is_none()) return nullptr;
  constexpr std::array policies{std::pair(std::string_view("required"), TlsPolicy::required),
                                std::pair(std::string_view("required_from_hosts"), TlsPolicy::required_from_hosts),
                                std::pair(std::string_view("allowed"), TlsPolicy::allowed)};
  TlsServerOptions made;
  for (const nb::handle one : nb::object(options.attr("certificates"))) {
    made.certificates.push_back(certificate_of(one));
  }
  for (const nb::handle one : nb::object(options.attr("shared_keys"))) made.shared_keys.push_back(shared_key_of(one));
  made.client_ca_file = text(options, "client_ca_file");
  made.client_certificate_required = flag(options, "client_certificate_required");
  made.crl_files = files(options, "crl_files");
  made.policy = choice(options, "policy", policies);
  made.protection = protection_of(options);
  made.tls12 = flag(options, "tls12");
  return TlsServer(std::move(made));
}

}  // namespace hawser::python
