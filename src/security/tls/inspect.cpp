#include <openssl/x509v3.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "base/try.h"
#include "hawser/tls.h"
#include "security/tls/certificate.h"
#include "security/tls/kernel.h"
#include "security/tls/private_key.h"

namespace hawser {
namespace {

constexpr std::int64_t soon_seconds = 14 * 24 * 3600;

}  // namespace

TlsKernelReport inspect_tls_kernel() {
  // Without the module, an attempt to use it would load it.
  std::ifstream available("/proc/sys/net/ipv4/tcp_available_ulp");
  const std::string names{std::istreambuf_iterator<char>(available), {}};
  if (available && !names.contains("tls")) {
    return {.ciphers = {},
            .problem = "the kernel cannot encrypt TLS (TlsKernel), because its module tls is not loaded: modprobe tls"};
  }
  const security::tls::KernelSupport support = security::tls::examine_kernel();
  TlsKernelReport report{.ciphers = {}, .problem = support.problem};
  std::string missing;
  for (std::size_t i = 0; i < security::tls::kernel_ciphers.size(); ++i) {
    const std::string name(security::tls::name_of(security::tls::kernel_ciphers[i]));
    if (support.problem.empty() && support.failures[i].step == KernelTls::Step::none) {
      report.ciphers.push_back(name);
    } else {
      missing += (missing.empty() ? "" : ", ") + name;
    }
  }
  if (report.problem.empty() && !missing.empty()) {
    report.problem = "this kernel does not encrypt with " + missing + ": use Linux 5.11 or later, with these ciphers";
  }
  return report;
}

Result<TlsCertificateReport> inspect_certificate(const TlsCertificate& files, const std::string& host,
                                                 std::int64_t now) {
  TRY(const security::tls::PemText& pem, security::tls::read_file(files.certificate_file));
  TRY(const std::vector<security::tls::X509Ptr>& chain, security::tls::parse_certificates(pem, files.certificate_file));
  X509* const own = chain.front().get();
  const EVP_PKEY* const key = X509_get0_pubkey(own);
  TlsCertificateReport report{.subject = security::tls::subject_text(own),
                              .issuer = security::tls::name_text(X509_get_issuer_name(own)),
                              .names = security::tls::names_of(own),
                              .key = security::tls::key_text(key),
                              .begins = security::tls::unix_time(X509_get0_notBefore(own)),
                              .ends = security::tls::unix_time(X509_get0_notAfter(own)),
                              .problems = {}};
  const auto add = [&report](std::string text) { report.problems.push_back(std::move(text)); };
  if (now < report.begins) {
    add("it is not valid before " + security::tls::time_text(X509_get0_notBefore(own)) +
        ": compare the clock with the issuer's");
  } else if (now >= report.ends) {
    add("it expired on " + security::tls::time_text(X509_get0_notAfter(own)) + ": renew it");
  } else if (report.ends - now < soon_seconds) {
    add("it expires on " + security::tls::time_text(X509_get0_notAfter(own)) + ", in less than 14 days: renew it");
  }
  if (report.names.empty()) {
    add("it has no subject alternative name, so that no client accepts it for a server: issue it with one");
  } else if (!host.empty() && !security::tls::valid_for(own, host)) {
    add("it is not valid for '" + host + "': issue it with this name");
  }
  if (key == nullptr || EVP_PKEY_get_security_bits(key) < 112) {
    add("its key is weak (" + report.key + "): use RSA with 2048 bits or more, or EC with 224 or more");
  }
  const std::uint32_t usage = X509_get_extended_key_usage(own);
  if (usage != UINT32_MAX && (usage & (XKU_SSL_SERVER | XKU_SSL_CLIENT | XKU_ANYEKU)) == 0) {
    add("its extended key usage has neither serverAuth nor clientAuth: issue it for TLS");
  }
  if (X509_self_signed(own, 0) == 1) {
    add("it is signed by itself: every peer must trust this very certificate");
  }
  if (security::tls::signs_elsewhere(files)) {
    const Result<security::tls::KeyPtr> tried =
        security::tls::open_private_key(files, own, std::make_shared<security::tls::SigningCounters>());
    if (!tried) add(tried.error().text);
  } else if (!files.key_file.empty()) {
    TRY(security::tls::PemText&& key_pem, security::tls::read_file(files.key_file));
    TRY(const security::tls::KeyPtr& own_key, security::tls::parse_key(key_pem, files.key_file));
    if (X509_check_private_key(own, own_key.get()) != 1) {
      add("the key in " + files.key_file + " is not that of this certificate: use the key with which it was requested");
    }
  }
  security::tls::take_errors();
  return report;
}

}  // namespace hawser
