#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/error.h"
#include "hawser/identity.h"
#include "hawser/time.h"
#include "heap/secret_memory.h"
#include "security/tls/openssl.h"

// Certificates: reading them from files, and texts about them.
namespace hawser::security::tls {

// Files with a private key are read only up to this size, like the others.
inline constexpr std::size_t pem_bytes_max = std::size_t{4} << 20;

// The text of a file, which may be or contain a private key: it lies in secret memory, and no copy is left.
class PemText {
 public:
  PemText() noexcept = default;
  PemText(PemText&& other) noexcept : bytes_(std::move(other.bytes_)) {}
  PemText& operator=(PemText&&) = delete;
  std::string_view text() const noexcept { return {bytes_.data(), bytes_.size()}; }

 private:
  friend Result<PemText> read_file(const std::string& path, const std::stop_token& stop, Duration pipe_time);
  SecretVector<char> bytes_;
};

// The error names the file and the reason. If the path leads to a pipe, this waits for the end of its writer, until
// `stop` or for `pipe_time`.
Result<PemText> read_file(const std::string& path, const std::stop_token& stop = {},
                          Duration pipe_time = std::chrono::seconds(30));
// The certificates of a PEM text, one at least. `path` is for the error.
Result<std::vector<X509Ptr>> parse_certificates(const PemText& pem, const std::string& path);
Result<KeyPtr> parse_key(const PemText& pem, const std::string& path);
// The lists of revoked certificates of a PEM text, one at least.
Result<std::vector<CrlPtr>> parse_crls(const PemText& pem, const std::string& path);

// The distinguished name of RFC 4514.
std::string name_text(const X509_NAME* name);
std::string subject_text(const X509* certificate);
std::string time_text(const ASN1_TIME* time);
std::string key_text(const EVP_PKEY* key);
std::int64_t unix_time(const ASN1_TIME* time);
// The subject alternative names that are DNS names, IP addresses and URIs: "DNS:a.example", "IP:10.0.0.1", "URI:a:b".
std::vector<std::string> names_of(const X509* certificate);
Identity identity_of(const X509* certificate);
// The host without the dot of the root at its end ("a.example."), which names of certificates and SNI do not have.
std::string_view without_root_dot(std::string_view host) noexcept;
// True if `host`, a name or an address, is one of the certificate's.
bool valid_for(X509* certificate, const std::string& host);
// True if both certificates have the same subject alternative names, in the same order.
bool same_names(const X509* one, const X509* other);
bool is_address(const std::string& host);

// Returns why the verification of `certificate` failed (X509_V_ERR_*), with the remedy. `host` is the name that was
// demanded, empty if there was none; `whose` is "server" or "client".
std::string verify_text(int error, X509* certificate, const std::string& host, const std::string& whose);

}  // namespace hawser::security::tls
