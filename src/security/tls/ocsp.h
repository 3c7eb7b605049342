#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "hawser/error.h"
#include "security/tls/openssl.h"

// Responses of issuers about the revocation of a certificate (OCSP, RFC 6960), which servers send with it.
namespace hawser::security::tls {

inline constexpr std::size_t ocsp_bytes_max = 64 * 1024;
// The clocks of issuers, servers and clients may differ by so much.
inline constexpr std::int64_t ocsp_leeway_seconds = 300;
// A response without a time of the next one is used for so long.
inline constexpr std::int64_t ocsp_endless_seconds = 7 * 24 * 3600;

// The response that a server sends. Times are in seconds since 1970.
struct OcspResponse {
  std::string der = {};  // Empty: there is none.
  std::int64_t begins = 0;
  std::int64_t ends = 0;
  // True if a server may send it at the time `now`. Clients whose clocks are late take it, too.
  bool current(std::int64_t now) const noexcept {
    return !der.empty() && now >= begins - ocsp_leeway_seconds && now < ends;
  }
};

// Reads the file of a server's response in DER format for `certificate`. `issuer` is null if it is not known; the key
// of the issuer is not compared then. The signature is not verified: clients do that. Fails unless the response says
// that the certificate is good; the time does not matter.
Result<OcspResponse> read_ocsp_response(const std::string& path, X509* certificate, X509* issuer);

// The judgement of a client.
struct OcspVerdict {
  // `absent` also means that the issuer does not know.
  enum class Status : std::uint8_t { good, absent, refused };
  Status status = Status::absent;
  std::string reason = {};  // Unless it is good: the end of a sentence about the certificate.
  std::int64_t ends = std::numeric_limits<std::int64_t>::max();  // A good response is not used from this time on.
};
// `der` is the response that the server has sent; empty: it sent none. `certificate` and its `issuer` were verified.
// `trusted` verifies the certificate by which an issuer lets another one respond. Throws std::bad_alloc.
OcspVerdict check_ocsp_response(std::string_view der, X509* certificate, X509* issuer, X509_STORE* trusted,
                                std::int64_t now);

// True if the certificate says that its server always sends a response (RFC 7633).
bool must_staple(const X509* certificate) noexcept;

}  // namespace hawser::security::tls
