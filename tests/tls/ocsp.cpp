#include <openssl/ocsp.h>

#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "security/tls/certificate.h"
#include "security/tls/context.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// OCSP responses that servers send with their certificates.
namespace hawser {
namespace {

using namespace testing_tools;

// Times are in seconds from now.
struct OcspAnswer {
  int status = V_OCSP_CERTSTATUS_GOOD;
  std::int64_t begins_in = -3600;
  std::int64_t ends_in = 24 * 3600;
  int response_status = OCSP_RESPONSE_STATUS_SUCCESSFUL;
  const security::tls::Authority* issuer = nullptr;  // Named and, without a delegate, signing. Null: the fixture's.
  const TlsCertificate* delegate = nullptr;
};

class TlsOcsp : public TlsFixture {
 protected:
  static security::tls::X509Ptr certificate_in(const std::string& file) {
    const Result<security::tls::PemText> pem = security::tls::read_file(file);
    EXPECT_TRUE(pem) << error_of(pem);
    Result<std::vector<security::tls::X509Ptr>> all = security::tls::parse_certificates(*pem, file);
    EXPECT_TRUE(all) << error_of(all);
    return std::move(all->front());
  }
  static security::tls::KeyPtr key_in(const std::string& file) {
    const Result<security::tls::PemText> pem = security::tls::read_file(file);
    EXPECT_TRUE(pem) << error_of(pem);
    Result<security::tls::KeyPtr> key = security::tls::parse_key(*pem, file);
    EXPECT_TRUE(key) << error_of(key);
    return std::move(*key);
  }
  // Writes a response about the certificate.
  std::string respond(const TlsCertificate& about, const OcspAnswer& answer = {}) {
    using BasicPtr = std::unique_ptr<OCSP_BASICRESP, security::tls::Released<OCSP_BASICRESP_free>>;
    using ResponsePtr = std::unique_ptr<OCSP_RESPONSE, security::tls::Released<OCSP_RESPONSE_free>>;
    using IdPtr = std::unique_ptr<OCSP_CERTID, security::tls::Released<OCSP_CERTID_free>>;
    using TimePtr = std::unique_ptr<ASN1_TIME, security::tls::Released<ASN1_TIME_free>>;
    const security::tls::Authority& issuer = answer.issuer != nullptr ? *answer.issuer : authority;
    const security::tls::X509Ptr certificate = certificate_in(about.certificate_file);
    const BasicPtr basic(OCSP_BASICRESP_new());
    const IdPtr id(OCSP_cert_to_id(EVP_sha1(), certificate.get(), issuer.certificate()));
    const TimePtr begins(X509_gmtime_adj(nullptr, answer.begins_in));
    const TimePtr ends(X509_gmtime_adj(nullptr, answer.ends_in));
    EXPECT_NE(OCSP_basic_add1_status(basic.get(), id.get(), answer.status, OCSP_REVOKED_STATUS_KEYCOMPROMISE,
                                     begins.get(), begins.get(), ends.get()),
              nullptr);
    if (answer.delegate != nullptr) {
      const security::tls::X509Ptr signer = certificate_in(answer.delegate->certificate_file);
      const security::tls::KeyPtr key = key_in(answer.delegate->key_file);
      EXPECT_EQ(OCSP_basic_sign(basic.get(), signer.get(), key.get(), EVP_sha256(), nullptr, 0), 1);
    } else {
      EXPECT_EQ(OCSP_basic_sign(basic.get(), issuer.certificate(), issuer.key(), EVP_sha256(), nullptr, OCSP_NOCERTS),
                1);
    }
    const bool answers = answer.response_status == OCSP_RESPONSE_STATUS_SUCCESSFUL;
    const ResponsePtr response(OCSP_response_create(answer.response_status, answers ? basic.get() : nullptr));
    unsigned char* der = nullptr;
    const int bytes = i2d_OCSP_RESPONSE(response.get(), &der);
    EXPECT_GT(bytes, 0);
    const std::string path = folder.path().string() + "/response." + std::to_string(responses_++);
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(der), bytes);
    OPENSSL_free(der);
    return path;
  }
  void start_with(TlsCertificate certificate, const std::string& response) {
    certificate.ocsp_file = response;
    tls_options.certificates = {std::move(certificate)};
    start();
  }
  TlsClientOptions demanding() const {
    TlsClientOptions made = client_options();
    made.ocsp_required = true;
    return made;
  }
  static std::string bytes_of(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // A server that sends the bytes of a file, or nothing if it is empty, whatever they are. Returns the client's error;
  // "ok" if there was none. `client` is the client's context, from one call to the next.
  std::string shown(const TlsCertificate& certificate, const std::string& response, bool tls12 = false,
                    bool required = true, std::shared_ptr<const security::tls::TlsContext> client = nullptr) {
    security::tls::ContextOptions server_options;
    server_options.server = true;
    server_options.certificates = {certificate};
    server_options.peer_certificate_bytes_max = 100'000;
    const auto server_context = load(server_options);
    if (client == nullptr) client = client_context(required, tls12);
    std::string der = response.empty() ? std::string() : bytes_of(response);
    SSL_CTX_set_tlsext_status_arg(server_context->get(), &der);
    SSL_CTX_set_tlsext_status_cb(
        server_context->get(), +[](SSL* ssl, void* given) -> int {
          const auto& bytes = *static_cast<std::string*>(given);
          if (bytes.empty()) return SSL_TLSEXT_ERR_NOACK;
          SSL_set_tlsext_status_ocsp_resp(ssl, OPENSSL_memdup(bytes.data(), bytes.size()),
                                          static_cast<long>(bytes.size()));
          return SSL_TLSEXT_ERR_OK;
        });
    security::tls::TlsSession ours(client, "localhost", "hawser", client->take("localhost"));
    security::tls::TlsSession theirs(server_context, std::string("\x06hawser"));
    const bool done = shake_hands(ours, theirs);
    if (done) static_cast<void>(received_by(ours));  // Tickets.
    return done ? "ok" : ours.error().text;
  }
  std::shared_ptr<const security::tls::TlsContext> client_context(bool required, bool tls12 = false) {
    security::tls::ContextOptions made;
    made.ca_file = authority.ca_file();
    made.ocsp_required = required;
    made.tls12 = tls12;
    made.peer_certificate_bytes_max = 100'000;
    auto context = load(made);
    if (tls12) SSL_CTX_set_max_proto_version(context->get(), TLS1_2_VERSION);
    return context;
  }
  std::string start_error() {
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    const Result<void> started = server->start();
    return started ? "started" : started.error().text;
  }

 private:
  int responses_ = 0;
};

TEST_F(TlsOcsp, AGoodResponseIsSentAndAccepted) {
  const TlsCertificate certificate = authority.issue("server");
  start_with(certificate, respond(certificate));
  EXPECT_EQ(call(demanding()), "ok");
  EXPECT_EQ(call(client_options()), "ok");
  for (const bool tls12 : {false, true}) EXPECT_EQ(shown(certificate, respond(certificate), tls12), "ok") << tls12;
}

TEST_F(TlsOcsp, OpensslSeesTheResponse) {
  const TlsCertificate certificate = authority.issue("server");
  start_with(certificate, respond(certificate));
  for (const std::string version : {"-tls1_3", "-tls1_2"}) {
    const std::string text = output_of("timeout 30 openssl s_client -status " + version + " -connect " +
                                       server->address() + " -CAfile " + authority.ca_file() + " </dev/null");
    EXPECT_HAS(text, "OCSP Response Status: successful (0x0)");
    EXPECT_HAS(text, "Cert Status: good");
  }
}

TEST_F(TlsOcsp, AClientRefusesEveryOtherResponse) {
  const TlsCertificate certificate = authority.issue("server");
  const TlsCertificate another = authority.issue("another");
  const security::tls::Authority foreign(folder.path().string(), "foreign");
  const std::string good = respond(certificate);
  const std::string cut = folder.path().string() + "/cut";
  const std::string longer = folder.path().string() + "/longer";
  const std::string changed = folder.path().string() + "/changed";
  std::string bytes = bytes_of(good);
  std::ofstream(cut, std::ios::binary) << bytes.substr(0, bytes.size() - 1);
  std::ofstream(longer, std::ios::binary) << bytes << 'x';
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(changed, std::ios::binary) << bytes;
  const struct {
    std::string response;
    const char* text;
  } cases[] = {
      {"", "sent no OCSP response, and TlsClientOptions::ocsp_required demands a good one"},
      {respond(certificate, {.status = V_OCSP_CERTSTATUS_REVOKED}), "says that it was revoked on "},
      {respond(certificate, {.status = V_OCSP_CERTSTATUS_UNKNOWN}), "its issuer does not know it"},
      {respond(certificate, {.response_status = OCSP_RESPONSE_STATUS_TRYLATER}), "has the status 'trylater'"},
      {respond(certificate, {.begins_in = -7200, .ends_in = -3600}), "ended on "},
      {respond(certificate, {.begins_in = 3600, .ends_in = 7200}), "is not valid before "},
      {respond(another), "is for another certificate"},
      {respond(certificate, {.issuer = &foreign}), "is not signed by the issuer"},
      {respond(certificate, {.delegate = &certificate}), "is not signed by the issuer"},
      {respond(certificate, {.delegate = &another}), "is not signed by the issuer"},
      {cut, "is not an OCSP response"},
      {longer, "is not an OCSP response"},
      {changed, "is not signed by the issuer"},
  };
  for (const bool tls12 : {false, true}) {
    for (const auto& one : cases) EXPECT_HAS(shown(certificate, one.response, tls12), one.text);
  }
  // Without the option, only what says nothing is accepted.
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    const bool silent = i == 0 || i == 2 || i == 3;
    EXPECT_EQ(shown(certificate, cases[i].response, false, false) == "ok", silent) << cases[i].text;
  }
}

TEST_F(TlsOcsp, AnIssuerMayLetAnotherCertificateRespond) {
  const TlsCertificate certificate = authority.issue("server");
  const TlsCertificate responder = authority.issue("responder", {.names = "", .usage = "OCSPSigning"});
  EXPECT_EQ(shown(certificate, respond(certificate, {.delegate = &responder})), "ok");
  security::tls::Authority foreign(folder.path().string(), "foreign");
  const TlsCertificate unknown = foreign.issue("responder", {.names = "", .usage = "OCSPSigning"});
  EXPECT_HAS(shown(certificate, respond(certificate, {.delegate = &unknown})), "is not signed by the issuer");
}

TEST_F(TlsOcsp, ACertificateCanDemandAResponse) {
  const TlsCertificate certificate = authority.issue("server", {.must_staple = true});
  EXPECT_HAS(shown(certificate, "", false, false), "and the certificate demands a good one");
  EXPECT_EQ(shown(certificate, respond(certificate), false, false), "ok");
}

TEST_F(TlsOcsp, AServerStartsWithAGoodResponseOnly) {
  TlsCertificate certificate = authority.issue("server");
  const TlsCertificate another = authority.issue("another");
  const std::string large = folder.path().string() + "/large";
  std::ofstream(large, std::ios::binary) << std::string(security::tls::ocsp_bytes_max + 1, 'x');
  const struct {
    std::string file;
    const char* text;
  } cases[] = {
      {certificate.certificate_file, "is not an OCSP response in DER format"},
      {folder.path().string() + "/absent", "No such file"},
      {large, "65537 bytes: an OCSP response has 65536 at most"},
      {respond(another), "is an OCSP response for another certificate than CN=localhost"},
      {respond(certificate, {.status = V_OCSP_CERTSTATUS_REVOKED}), "was revoked on"},
      {respond(certificate, {.status = V_OCSP_CERTSTATUS_UNKNOWN}), "unknown to its issuer"},
      {respond(certificate, {.response_status = OCSP_RESPONSE_STATUS_TRYLATER}), "'trylater'"},
  };
  for (const auto& one : cases) {
    certificate.ocsp_file = one.file;
    tls_options.certificates = {certificate};
    EXPECT_HAS(start_error(), one.text);
  }
}

TEST_F(TlsOcsp, AResponseThatHasEndedIsNotSentUntilItIsRenewed) {
  const TlsCertificate certificate = authority.issue("server");
  const std::string response = respond(certificate, {.begins_in = -7200, .ends_in = -60});
  start_with(certificate, response);
  EXPECT_EQ(call(client_options()), "ok");
  EXPECT_HAS(call(demanding()), "sent no OCSP response");
  EXPECT_TRUE(soon([&] { return logged().find("are not sent: " + response) != std::string::npos; })) << logged();
  std::filesystem::rename(respond(certificate), response);
  ASSERT_TRUE(security->reload());
  EXPECT_EQ(call(demanding()), "ok");
  // A response that cannot be used leaves the old one in use.
  std::filesystem::rename(respond(certificate, {.status = V_OCSP_CERTSTATUS_REVOKED}), response);
  EXPECT_FALSE(security->reload());
  EXPECT_EQ(call(demanding()), "ok");
}

// A resumed session has no response, so it ends with the one that it began with.
TEST_F(TlsOcsp, ASessionIsResumedUntilItsResponseEnds) {
  const TlsCertificate certificate = authority.issue("server");
  const auto context = client_context(true);
  const std::int64_t before = std::time(nullptr);
  ASSERT_EQ(shown(certificate, respond(certificate, {.ends_in = 1000}), false, true, context), "ok");
  const std::int64_t after = std::time(nullptr);
  security::tls::SslSessionPtr session = context->take("localhost");
  ASSERT_NE(session, nullptr);
  void* noted = nullptr;
  std::size_t bytes = 0;
  std::array<std::int64_t, 2> times{};
  ASSERT_EQ(SSL_SESSION_get0_ticket_appdata(session.get(), &noted, &bytes), 1);
  ASSERT_EQ(bytes, sizeof times);
  std::memcpy(times.data(), noted, bytes);
  EXPECT_GE(times[1], before + 1000 + security::tls::ocsp_leeway_seconds);
  EXPECT_LE(times[1], after + 1000 + security::tls::ocsp_leeway_seconds);
  EXPECT_TRUE(context->may_resume(session.get()));
  times[1] = before;
  ASSERT_EQ(SSL_SESSION_set1_ticket_appdata(session.get(), times.data(), sizeof times), 1);
  EXPECT_FALSE(context->may_resume(session.get()));
}

}  // namespace
}  // namespace hawser
