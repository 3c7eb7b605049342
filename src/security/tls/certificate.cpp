#include "security/tls/certificate.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/escaped_text.h"
#include "hawser/authorization.h"
#include "os/secret_file.h"

namespace hawser::security::tls {
namespace {

using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, Released<GENERAL_NAMES_free>>;

BioPtr memory_bio(const PemText& pem) {
  const std::string_view text = pem.text();
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// PEM callbacks of encrypted keys: no password is known. Without it OpenSSL would ask at the terminal.
int no_password(char*, int, int, void*) { return -1; }

std::string text_of(const ASN1_STRING* string) {
  std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                   static_cast<std::size_t>(ASN1_STRING_length(string)));
  std::ranges::replace_if(text, [](char one) { return static_cast<unsigned char>(one) < 0x20 || one == 0x7f; }, '?');
  return text;
}

std::string address_text(const ASN1_STRING* address) {
  const unsigned char* const bytes = ASN1_STRING_get0_data(address);
  const int size = ASN1_STRING_length(address);
  std::string text;
  if (size == 4) {
    for (int i = 0; i < 4; ++i) text += (i == 0 ? "" : ".") + std::to_string(bytes[i]);
  } else if (size == 16) {
    constexpr std::string_view digits = "0123456789abcdef";
    for (int i = 0; i < 16; ++i) {
      if (i != 0 && i % 2 == 0) text += ':';
      text += digits[bytes[i] >> 4];
      text += digits[bytes[i] & 15];
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> names_of(const X509* certificate) {
  const GeneralNamesPtr names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> all;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const one = sk_GENERAL_NAME_value(names.get(), i);
    if (one->type == GEN_URI) all.push_back("URI:" + text_of(one->d.uniformResourceIdentifier));
    if (one->type == GEN_DNS) all.push_back("DNS:" + text_of(one->d.dNSName));
    if (one->type == GEN_IPADD) all.push_back("IP:" + address_text(one->d.iPAddress));
  }
  return all;
}

namespace {

// Anybody may send a certificate with long names, and its texts are written to logs.
constexpr std::size_t quoted_bytes_max = 256;

std::string printable(std::string_view text) {
  std::string shown;
  append_escaped(shown, text, quoted_bytes_max);
  return shown;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : ", ") + name;
    if (text.size() > quoted_bytes_max) break;
  }
  return text.empty() ? "no name" : printable(text);
}

}  // namespace

std::string reason_text(unsigned long error) {
  const char* const reason = ERR_reason_error_string(error);
  if (reason != nullptr) return reason;
  if (ERR_SYSTEM_ERROR(error)) return std::strerror(ERR_GET_REASON(error));
  return "OpenSSL error " + std::to_string(error);
}

std::string take_errors() {
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  return first == 0 ? std::string() : reason_text(first);
}

Result<PemText> read_file(const std::string& path, const std::stop_token& stop, Duration pipe_time) {
  Result<SecretVector<char>> bytes = read_secret_file(path, pem_bytes_max, stop, pipe_time);
  if (!bytes) {
    if (bytes.error().code == ErrorCode::limit_exceeded) {
      bytes.error().text += ": it cannot be a file of certificates or keys";
    }
    return fail(std::move(bytes.error()));
  }
  PemText text;
  text.bytes_.swap(*bytes);
  return text;
}

namespace {

// Every object of one kind in a PEM text, one at least. `kind` and `label` are for errors.
template <class Pointer, class Read>
Result<std::vector<Pointer>> parse_each(const PemText& pem, const std::string& path, Read read, const char* kind,
                                        const char* label) {
  const BioPtr bio = memory_bio(pem);
  std::vector<Pointer> all;
  while (auto* const one = read(bio.get(), nullptr, no_password, nullptr)) all.emplace_back(one);
  const unsigned long last = ERR_peek_last_error();
  const bool at_end = ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
  const std::string error = take_errors();
  if (!at_end) {
    return fail(ErrorCode::invalid_argument, path + ": " + kind + " " + std::to_string(all.size() + 1) +
                                                 " is cut or damaged (" + error +
                                                 "): put the whole file in its place by a rename");
  }
  if (!all.empty()) return all;
  return fail(ErrorCode::invalid_argument, path + " has no " + kind + " in PEM format (" + error +
                                               "): it must contain -----BEGIN " + label + "-----");
}

}  // namespace

Result<std::vector<X509Ptr>> parse_certificates(const PemText& pem, const std::string& path) {
  return parse_each<X509Ptr>(pem, path, PEM_read_bio_X509, "certificate", "CERTIFICATE");
}

Result<std::vector<CrlPtr>> parse_crls(const PemText& pem, const std::string& path) {
  return parse_each<CrlPtr>(pem, path, PEM_read_bio_X509_CRL, "list of revoked certificates", "X509 CRL");
}

Result<KeyPtr> parse_key(const PemText& pem, const std::string& path) {
  const BioPtr bio = memory_bio(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  const std::string error = take_errors();
  if (key != nullptr) return key;
  return fail(ErrorCode::invalid_argument,
              path + " has no private key in PEM format that can be read without a password (" + error + ")");
}

std::string name_text(const X509_NAME* name) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr ||
      X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253 & ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB)) < 0)
    return {};
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

std::string subject_text(const X509* certificate) { return name_text(X509_get_subject_name(certificate)); }

std::int64_t unix_time(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? timegm(&parts) : 0;
}

std::string time_text(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown time";
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text.data();
}

std::string key_text(const EVP_PKEY* key) {
  if (key == nullptr) return "an unknown key";
  const char* const type = EVP_PKEY_get0_type_name(key);
  return std::string(type != nullptr ? type : "unknown") + " " + std::to_string(EVP_PKEY_get_bits(key)) + " bits";
}

Identity identity_of(const X509* certificate) {
  Identity identity;
  identity.kind = Identity::Kind::certificate;
  identity.subject = subject_text(certificate);
  identity.issuer = name_text(X509_get_issuer_name(certificate));
  identity.alt_names = names_of(certificate);
  // A certificate with several URIs is not a SPIFFE certificate (X509-SVID, 2).
  const auto is_uri = [](const std::string& name) { return name.starts_with("URI:"); };
  if (std::ranges::count_if(identity.alt_names, is_uri) == 1) {
    const std::string uri = std::ranges::find_if(identity.alt_names, is_uri)->substr(4);
    if (valid_spiffe_id(uri)) identity.spiffe_id = uri;
  }
  return identity;
}

bool is_address(const std::string& host) {
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(host.c_str());
  ERR_clear_error();
  if (address == nullptr) return false;
  ASN1_OCTET_STRING_free(address);
  return true;
}

std::string_view without_root_dot(std::string_view host) noexcept {
  if (host.size() > 1 && host.ends_with('.')) host.remove_suffix(1);
  return host;
}

bool valid_for(X509* certificate, const std::string& host) {
  const bool valid = is_address(host) ? X509_check_ip_asc(certificate, host.c_str(), 0) == 1
                                      : X509_check_host(certificate, host.data(), host.size(), 0, nullptr) == 1;
  ERR_clear_error();
  return valid;
}

bool same_names(const X509* one, const X509* other) {
  const auto names = [](const X509* certificate) -> const ASN1_OCTET_STRING* {
    const int at = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
    return at < 0 ? nullptr : X509_EXTENSION_get_data(X509_get_ext(certificate, at));
  };
  const ASN1_OCTET_STRING* const left = names(one);
  const ASN1_OCTET_STRING* const right = names(other);
  if (left != nullptr && right != nullptr) return ASN1_OCTET_STRING_cmp(left, right) == 0;
  return left == right && X509_NAME_cmp(X509_get_subject_name(one), X509_get_subject_name(other)) == 0;
}

std::string verify_text(int error, X509* certificate, const std::string& host, const std::string& whose) {
  const std::string subject = certificate != nullptr ? " (" + printable(subject_text(certificate)) + ")" : "";
  const std::string issuer = certificate != nullptr ? printable(name_text(X509_get_issuer_name(certificate))) : "";
  const std::string ca = whose == "server" ? "TlsClientOptions::ca_file" : "TlsServerOptions::client_ca_file";
  const std::string crls = whose == "server" ? "TlsClientOptions::crl_files" : "TlsServerOptions::crl_files";
  const std::string it = "the " + whose + "'s certificate" + subject;
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return it + " or one of its issuers expired on " +
             (certificate != nullptr ? time_text(X509_get0_notAfter(certificate)) : "an unknown day") + ": renew it";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return it + " is not valid before " +
             (certificate != nullptr ? time_text(X509_get0_notBefore(certificate)) : "some later day") +
             ": compare the clocks of both machines";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return it + " is valid for " + (certificate != nullptr ? listed(names_of(certificate)) : "other names") +
             " and not for '" + host + "': connect by one of its names, or set TlsClientOptions::server_name";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_UNTRUSTED:
      return it + " has an issuer that is not trusted (" + issuer + "): add the issuer's certificate to " + ca +
             ", or send the certificates between them";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return it + " is signed by itself and not trusted: add it to " + ca + ", or use one of a trusted issuer";
    case X509_V_ERR_INVALID_PURPOSE:
      return it + " is not meant for a " + whose + ": its extended key usage lacks " + whose + "Auth";
    case X509_V_ERR_INVALID_CA:
      return it + " was issued by a certificate that is not one of an issuer (basicConstraints lacks CA:TRUE)";
    case X509_V_ERR_CERT_REVOKED: return it + " was revoked by its issuer (" + issuer + "): use a new one";
    case X509_V_ERR_UNABLE_TO_GET_CRL:
      return it + ": there is no list of revoked certificates of its issuer (" + issuer + "): add it to " + crls;
    case X509_V_ERR_CRL_HAS_EXPIRED:
      return it + ": the list of revoked certificates of its issuer (" + issuer + ") is too old: renew it in " + crls;
    case X509_V_ERR_EE_KEY_TOO_SMALL:
    case X509_V_ERR_CA_KEY_TOO_SMALL:
      return it + " or one of its issuers has a weak key (" +
             key_text(certificate != nullptr ? X509_get0_pubkey(certificate) : nullptr) +
             "): use RSA with 2048 bits or more, or EC with 224 or more";
    case X509_V_ERR_CA_MD_TOO_WEAK: return it + " or one of its issuers has a weak signature: use SHA-256 or better";
    default: return it + ": " + X509_verify_cert_error_string(error);
  }
}

}  // namespace hawser::security::tls
