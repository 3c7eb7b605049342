#include "security/tls/authority.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "os/secret_file.h"
#include "security/tls/certificate.h"

namespace hawser::security::tls {
namespace {

void require(bool done, const std::string& what) {
  if (!done) throw std::runtime_error("hawser: " + what + ": " + take_errors());
}

KeyPtr make_key(unsigned rsa_bits, bool ed25519 = false) {
  KeyPtr key(ed25519         ? EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")
             : rsa_bits == 0 ? EVP_EC_gen("P-256")
                             : EVP_RSA_gen(rsa_bits));
  require(key != nullptr, "no key could be made");
  return key;
}

// The file may be a key. Replaces a file in one step.
void write_file(const std::string& path, const BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(const_cast<BIO*>(bio), &data);
  const std::string temporary = path + ".new";
  std::error_code error;
  require(write_private_file(temporary, {data, static_cast<std::size_t>(size)}), "cannot write " + path);
  std::filesystem::rename(temporary, path, error);
  require(!error, "cannot write " + path);
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  const bool added = extension != nullptr && X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  require(added, "the extension " + value + " cannot be added");
}

X509Ptr make_certificate(long serial, const std::string& subject, std::int64_t begins_in, std::int64_t ends_in,
                         EVP_PKEY* key, const X509_NAME* issuer) {
  X509Ptr made(X509_new());
  require(made != nullptr, "out of memory");
  X509* const certificate = made.get();
  X509_set_version(certificate, X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), begins_in);
  X509_gmtime_adj(X509_getm_notAfter(certificate), ends_in);
  X509_NAME* const name = X509_get_subject_name(certificate);
  const auto* const text = reinterpret_cast<const unsigned char*>(subject.c_str());
  require(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, text, -1, -1, 0) == 1, "wrong subject " + subject);
  X509_set_issuer_name(certificate, issuer != nullptr ? issuer : name);
  X509_set_pubkey(certificate, key);
  return made;
}

}  // namespace

Authority::Authority(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)), key_(make_key(0)) {
  certificate_ = make_certificate(serial_++, "authority " + name_, -24 * 3600, 24 * 3600, key_.get(), nullptr);
  X509* const own = certificate_.get();
  add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(own, own, NID_subject_key_identifier, "hash");
  require(X509_sign(own, key_.get(), EVP_sha256()) > 0, "the authority cannot sign");
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), own);
  write_file(ca_file(), bio.get());
}

TlsCertificate Authority::issue(const std::string& file, const Request& request) {
  const KeyPtr key = make_key(request.rsa_bits, request.ed25519);
  const X509Ptr made = make_certificate(serial_++, request.subject, request.begins_in_seconds, request.ends_in_seconds,
                                        key.get(), X509_get_subject_name(certificate_.get()));
  X509* const certificate = made.get();
  add_extension(certificate, certificate_.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate, certificate_.get(), NID_authority_key_identifier, "keyid");
  if (!request.names.empty()) {
    add_extension(certificate, certificate_.get(), NID_subject_alt_name, request.names);
  }
  if (!request.usage.empty()) {
    add_extension(certificate, certificate_.get(), NID_ext_key_usage, request.usage);
  }
  if (request.must_staple) add_extension(certificate, certificate_.get(), NID_tlsfeature, "status_request");
  if (request.comment_bytes != 0) {
    add_extension(certificate, certificate_.get(), NID_netscape_comment, std::string(request.comment_bytes, 'x'));
  }
  require(X509_sign(certificate, key_.get(), EVP_sha256()) > 0, "the authority cannot sign");
  TlsCertificate files{path("." + file + ".pem"), path("." + file + ".key")};
  BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  write_file(files.certificate_file, bio.get());
  bio.reset(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  write_file(files.key_file, bio.get());
  return files;
}

std::string Authority::revoke(const std::vector<TlsCertificate>& revoked, std::int64_t ends_in_seconds) {
  const CrlPtr crl(X509_CRL_new());
  require(crl != nullptr, "out of memory");
  X509_CRL_set_version(crl.get(), X509_CRL_VERSION_2);
  X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(certificate_.get()));
  using TimePtr = std::unique_ptr<ASN1_TIME, Released<ASN1_TIME_free>>;
  const TimePtr begins(X509_gmtime_adj(nullptr, -24 * 3600));
  const TimePtr ends(X509_gmtime_adj(nullptr, ends_in_seconds));
  X509_CRL_set1_lastUpdate(crl.get(), begins.get());
  X509_CRL_set1_nextUpdate(crl.get(), ends.get());
  for (const TlsCertificate& files : revoked) {
    const Result<PemText> pem = read_file(files.certificate_file);
    require(pem.has_value(), "cannot read " + files.certificate_file);
    const Result<std::vector<X509Ptr>> chain = parse_certificates(*pem, files.certificate_file);
    require(chain.has_value(), "cannot read " + files.certificate_file);
    X509_REVOKED* const entry = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(chain->front().get()));
    X509_REVOKED_set_revocationDate(entry, begins.get());
    require(X509_CRL_add0_revoked(crl.get(), entry) == 1, "out of memory");
  }
  X509_CRL_sort(crl.get());
  require(X509_CRL_sign(crl.get(), key_.get(), EVP_sha256()) > 0, "the authority cannot sign");
  const BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_CRL(bio.get(), crl.get());
  write_file(path(".crl.pem"), bio.get());
  return path(".crl.pem");
}

}  // namespace hawser::security::tls
