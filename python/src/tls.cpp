#include "tls.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/tls.h"

namespace hawser::python {
namespace {

template <class T>
T field(nb::handle options, const char* name) {
  return nb::cast<T>(nb::object(options.attr(name)));
}

TlsCertificate certificate_of(nb::handle given) {
  return {.certificate_file = field<std::string>(given, "certificate_file"),
          .key_file = field<std::string>(given, "key_file"),
          .ocsp_file = field<std::string>(given, "ocsp_file")};
}

TlsSharedKey shared_key_of(nb::handle given) {
  return {.name = field<std::string>(given, "name"), .file = field<std::string>(given, "file")};
}

// The value of an enumeration by its name.
template <class Value, std::size_t count>
Value choice(nb::handle options, const char* name, const std::array<std::pair<std::string_view, Value>, count>& known) {
  const auto given = field<std::string>(options, name);
  std::string names;
  for (const auto& [text, value] : known) {
    if (text == given) return value;
    names += (names.empty() ? "\"" : ", \"") + std::string(text) + "\"";
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
  made.ca_file = field<std::string>(options, "ca_file");
  made.crl_files = field<std::vector<std::string>>(options, "crl_files");
  made.ocsp_required = field<bool>(options, "ocsp_required");
  const nb::object certificate = options.attr("certificate");
  if (!certificate.is_none()) made.certificate = certificate_of(certificate);
  const nb::object shared_key = options.attr("shared_key");
  if (!shared_key.is_none()) made.shared_key = shared_key_of(shared_key);
  made.server_name = field<std::string>(options, "server_name");
  made.protection = protection_of(options);
  made.tls12 = field<bool>(options, "tls12");
  made.accept_any_server = field<bool>(options, "accept_any_server");
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
  made.client_ca_file = field<std::string>(options, "client_ca_file");
  made.client_certificate_required = field<bool>(options, "client_certificate_required");
  made.crl_files = field<std::vector<std::string>>(options, "crl_files");
  made.policy = choice(options, "policy", policies);
  made.protection = protection_of(options);
  made.tls12 = field<bool>(options, "tls12");
  return TlsServer(std::move(made));
}

}  // namespace hawser::python
