#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/error.h"
#include "heap/secret_memory.h"

namespace hawser::security::tls {

// The URI of a private key in a token (RFC 7512): "pkcs11:token=web;object=server?module-path=FILE&pin-source=FILE".
struct Pkcs11Uri {
  // Attributes that the token and the key must have. Empty: any value.
  std::string token;
  std::string manufacturer;
  std::string model;
  std::string serial;
  std::optional<std::uint64_t> slot;
  std::string object;  // The label of the key.
  std::string id;      // In binary form.
  // How to use them.
  std::string module_path = {};
  std::string pin_file = {};
  std::optional<SecretText> pin = {};
  // The URI without its query, which may contain a PIN. For errors.
  std::string shown = {};
};

// `uri` begins with "pkcs11:". The error names the attribute and the remedy, and contains no PIN.
Result<Pkcs11Uri> parse_pkcs11_uri(std::string_view uri);

}  // namespace hawser::security::tls
