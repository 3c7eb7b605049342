#include "security/tls/ocsp.h"

#include <openssl/err.h>
#include <openssl/ocsp.h>
#include <openssl/x509v3.h>

#include <array>
#include <utility>

#include "base/try.h"
#include "security/tls/certificate.h"

namespace hawser::security::tls {
namespace {

using ResponsePtr = std::unique_ptr<OCSP_RESPONSE, Released<OCSP_RESPONSE_free>>;
using BasicPtr = std::unique_ptr<OCSP_BASICRESP, Released<OCSP_BASICRESP_free>>;

// The signed part of a response, or the reason why there is none.
struct Parsed {
  BasicPtr basic;
  std::string reason;
  bool declined = false;  // The issuer has answered that it does not answer.
};

Parsed parse(std::string_view der) {
  const auto* at = reinterpret_cast<const unsigned char*>(der.data());
  const unsigned char* const end = at + der.size();
  const ResponsePtr response(d2i_OCSP_RESPONSE(nullptr, &at, static_cast<long>(der.size())));
  if (response == nullptr || at != end) return {nullptr, "is not an OCSP response in DER format", false};
  if (const int status = OCSP_response_status(response.get()); status != OCSP_RESPONSE_STATUS_SUCCESSFUL) {
    return {
        nullptr,
        std::string("has the status '") + OCSP_response_status_str(status) + "' and says nothing of the certificate",
        true};
  }
  BasicPtr basic(OCSP_response_get1_basic(response.get()));
  if (basic == nullptr) return {nullptr, "has another type than id-pkix-ocsp-basic", false};
  return {std::move(basic), {}, false};
}

using DigestBytes = std::array<unsigned char, EVP_MAX_MD_SIZE>;

bool equal(const ASN1_OCTET_STRING* given, const DigestBytes& hash, unsigned bytes) {
  return given != nullptr && ASN1_STRING_length(given) == static_cast<int>(bytes) &&
         std::equal(hash.data(), hash.data() + bytes, ASN1_STRING_get0_data(given));
}

// A certificate is named by its number and by hashes of its issuer's name and key, of an algorithm of the responder's
// choice.
bool names(const OCSP_CERTID* id, const X509* certificate, const X509* issuer) {
  ASN1_OCTET_STRING* name_hash = nullptr;
  ASN1_OCTET_STRING* key_hash = nullptr;
  ASN1_OBJECT* algorithm = nullptr;
  ASN1_INTEGER* number = nullptr;
  if (OCSP_id_get0_info(&name_hash, &algorithm, &key_hash, &number, const_cast<OCSP_CERTID*>(id)) != 1) return false;
  if (ASN1_INTEGER_cmp(number, X509_get0_serialNumber(certificate)) != 0) return false;
  const EVP_MD* const digest = EVP_get_digestbyobj(algorithm);
  DigestBytes hash{};
  unsigned bytes = 0;
  if (digest == nullptr || X509_NAME_digest(X509_get_issuer_name(certificate), digest, hash.data(), &bytes) != 1 ||
      !equal(name_hash, hash, bytes)) {
    return false;
  }
  return issuer == nullptr ||
         (X509_pubkey_digest(issuer, digest, hash.data(), &bytes) == 1 && equal(key_hash, hash, bytes));
}

// The answer about one certificate.
struct OcspAnswer {
  int status = V_OCSP_CERTSTATUS_UNKNOWN;
  std::int64_t begins = 0;
  std::int64_t ends = 0;
  std::string revoked = {};  // Since when.
};

bool find(OCSP_BASICRESP* basic, const X509* certificate, const X509* issuer, OcspAnswer& answer) {
  for (int i = 0; i < OCSP_resp_count(basic); ++i) {
    OCSP_SINGLERESP* const one = OCSP_resp_get0(basic, i);
    if (!names(OCSP_SINGLERESP_get0_id(one), certificate, issuer)) continue;
    int reason = 0;
    ASN1_GENERALIZEDTIME* revoked = nullptr;
    ASN1_GENERALIZEDTIME* begins = nullptr;
    ASN1_GENERALIZEDTIME* ends = nullptr;
    answer.status = OCSP_single_get0_status(one, &reason, &revoked, &begins, &ends);
    answer.begins = begins != nullptr ? unix_time(begins) : 0;
    answer.ends = ends != nullptr ? unix_time(ends) : answer.begins + ocsp_endless_seconds;
    if (revoked != nullptr) answer.revoked = time_text(revoked);
    return true;
  }
  return false;
}

std::string seconds_text(std::int64_t seconds) {
  const std::unique_ptr<ASN1_TIME, Released<ASN1_TIME_free>> time(ASN1_TIME_set(nullptr, seconds));
  return time != nullptr ? time_text(time.get()) : "an unknown time";
}

// The signature is that of the issuer's key, or of a certificate within the response that the issuer has issued for
// this purpose (extended key usage OCSPSigning).
bool verify(OCSP_BASICRESP* basic, X509* issuer, X509_STORE* trusted) {
  STACK_OF(X509)* const issuers = sk_X509_new_null();
  if (issuers == nullptr || sk_X509_push(issuers, issuer) <= 0) {
    sk_X509_free(issuers);
    return false;
  }
  // OCSP_TRUSTOTHER accepts the signature of `issuers` without a further check, so only the issuer is among them: the
  // certificate itself must not vouch for itself.
  const bool verified = OCSP_basic_verify(basic, issuers, trusted, OCSP_TRUSTOTHER) == 1;
  sk_X509_free(issuers);
  ERR_clear_error();
  return verified;
}

}  // namespace

Result<OcspResponse> read_ocsp_response(const std::string& path, X509* certificate, X509* issuer) {
  TRY(PemText&& file, read_file(path));
  const std::string_view der = file.text();
  if (der.size() > ocsp_bytes_max) {
    return fail(ErrorCode::limit_exceeded, path + " has " + std::to_string(der.size()) +
                                               " bytes: an OCSP response has " + std::to_string(ocsp_bytes_max) +
                                               " at most");
  }
  const Parsed parsed = parse(der);
  ERR_clear_error();
  if (parsed.basic == nullptr) {
    return fail(ErrorCode::invalid_argument, path + " " + parsed.reason + ": write the answer of the issuer's " +
                                                 "responder there, such as `openssl ocsp -respout` does");
  }
  OcspAnswer answer;
  if (!find(parsed.basic.get(), certificate, issuer, answer)) {
    return fail(ErrorCode::invalid_argument, path + " is an OCSP response for another certificate than " +
                                                 subject_text(certificate) + ": ask the responder for this one");
  }
  if (answer.status != V_OCSP_CERTSTATUS_GOOD) {
    return fail(ErrorCode::invalid_argument,
                path + " says that the certificate " + subject_text(certificate) +
                    (answer.status == V_OCSP_CERTSTATUS_REVOKED
                         ? " was revoked on " + answer.revoked + ": use a new certificate"
                         : " is unknown to its issuer: ask the right responder, or use another certificate"));
  }
  return OcspResponse{.der = std::string(der), .begins = answer.begins, .ends = answer.ends};
}

OcspVerdict check_ocsp_response(std::string_view der, X509* certificate, X509* issuer, X509_STORE* trusted,
                                std::int64_t now) {
  using Status = OcspVerdict::Status;
  if (der.empty()) return {Status::absent, "the server sent no OCSP response"};
  const auto refused = [](std::string why) {
    return OcspVerdict{Status::refused, "the OCSP response that the server sent " + std::move(why)};
  };
  Parsed parsed = parse(der);
  ERR_clear_error();
  if (parsed.basic == nullptr) {
    if (!parsed.declined) return refused(std::move(parsed.reason));
    return {Status::absent, "the OCSP response that the server sent " + std::move(parsed.reason)};
  }
  if (!verify(parsed.basic.get(), issuer, trusted)) {
    return refused("is not signed by the issuer of the certificate, nor by one that the issuer permits to respond");
  }
  OcspAnswer answer;
  if (!find(parsed.basic.get(), certificate, issuer, answer)) return refused("is for another certificate");
  // A revocation has no end.
  if (answer.status == V_OCSP_CERTSTATUS_REVOKED) return refused("says that it was revoked on " + answer.revoked);
  if (now < answer.begins - ocsp_leeway_seconds) {
    return refused("is not valid before " + seconds_text(answer.begins) + ": compare the clocks of both machines");
  }
  if (now >= answer.ends + ocsp_leeway_seconds) {
    return refused("ended on " + seconds_text(answer.ends) + ": renew TlsCertificate::ocsp_file at the server");
  }
  if (answer.status != V_OCSP_CERTSTATUS_GOOD) {
    return {Status::absent, "the OCSP response that the server sent says that its issuer does not know it"};
  }
  return {Status::good, {}, answer.ends + ocsp_leeway_seconds};
}

bool must_staple(const X509* certificate) noexcept {
  using FeaturesPtr = std::unique_ptr<TLS_FEATURE, Released<TLS_FEATURE_free>>;
  constexpr long status_request = 5;  // RFC 6066, 8.
  const FeaturesPtr features(
      static_cast<TLS_FEATURE*>(X509_get_ext_d2i(certificate, NID_tlsfeature, nullptr, nullptr)));
  for (int i = 0; i < sk_ASN1_INTEGER_num(features.get()); ++i) {
    if (ASN1_INTEGER_get(sk_ASN1_INTEGER_value(features.get(), i)) == status_request) return true;
  }
  ERR_clear_error();
  return false;
}

}  // namespace hawser::security::tls
