#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "hawser/identity.h"
#include "security/tls/certificate.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"

// Certificates that are wrong in every way, and certificates that change.
namespace hawser {

// GCC warns of anonymous functions that could be offloaded.
namespace tls_test {

std::string caller_of(Context& context) {
  const Identity& identity = context.identity();
  std::string text = std::string(to_string(identity.kind)) + " " + identity.subject + " by " + identity.issuer;
  for (const std::string& name : identity.alt_names) text += " " + name;
  return text + " " + identity.spiffe_id;
}

}  // namespace tls_test

namespace {

using namespace testing_tools;
using tls_test::caller_of;

class TlsCertificates : public TlsFixture {
 protected:
  // The text that a client gets whose server has this certificate.
  std::string with_server(const security::tls::Request& request) {
    tls_options.certificates = {authority.issue("server", request)};
    start();
    const std::string text = call(client_options());
    server.reset();
    return text;
  }
};

TEST_F(TlsCertificates, OfServersAreRefusedWithTheReason) {
  EXPECT_EQ(with_server({}), "ok");
  EXPECT_HAS(with_server({.begins_in_seconds = -7200, .ends_in_seconds = -3600}), "expired on ");
  EXPECT_HAS(with_server({.begins_in_seconds = 3600}), "is not valid before ");
  const std::string host = with_server({.names = "DNS:other.example,IP:10.0.0.1"});
  EXPECT_HAS(host, "is valid for DNS:other.example, IP:10.0.0.1 and not for '127.0.0.1'");
  EXPECT_HAS(host, "TlsClientOptions::server_name");
  EXPECT_HAS(with_server({.names = ""}), "is valid for no name and not for '127.0.0.1'");
  EXPECT_HAS(with_server({.usage = "clientAuth"}), "is not meant for a server");
}

TEST_F(TlsCertificates, DoNotHaveTheZoneOfAnAddress) {
  tls_options.certificates = {authority.issue("server", {.names = "IP:fe80::1"})};
  start();
  TlsClientOptions with = client_options();
  for (const std::string name : {"fe80::1", "fe80::1%lo", "fe80:0::1%2"}) {
    with.server_name = name;
    EXPECT_EQ(call(with), "ok") << name;
  }
  with.server_name = "fe80::2%lo";
  EXPECT_HAS(call(with), "and not for 'fe80::2'");
  for (const std::string name : {"10.0.0.1%lo", "a.example%lo", "%lo"}) {
    with.server_name = name;
    EXPECT_HAS(call(with), "is valid for IP:fe80");
  }
}

TEST_F(TlsCertificates, OfUnknownIssuersAreRefused) {
  start();
  security::tls::Authority other(folder.path().string(), "other");
  TlsClientOptions with;
  with.ca_file = other.ca_file();
  const std::string text = call(with);
  EXPECT_HAS(text, "has an issuer that is not trusted (CN=authority main)");
  EXPECT_HAS(text, "TlsClientOptions::ca_file");
  // The issuers of the system are not this one.
  EXPECT_HAS(call(TlsClientOptions{}), "not trusted");
  TlsClientOptions any;
  any.accept_any_server = true;
  EXPECT_EQ(call(any), "ok");
}

TEST_F(TlsCertificates, WithWeakKeysAreRefused) {
  // The server itself refuses it, before it starts.
  TlsServerOptions weak;
  weak.certificates = {authority.issue("weak", {.rsa_bits = 1024})};
  const Result<void> loaded = TlsServer(weak).reload();
  ASSERT_FALSE(loaded);
  EXPECT_HAS(loaded.error().text, "RSA 1024 bits; RSA needs 2048 bits or more");
}

TEST_F(TlsCertificates, AndKeysMustBelongTogetherAndBeReadable) {
  const TlsCertificate one = authority.issue("one");
  const TlsCertificate two = authority.issue("two");
  const auto refused = [](TlsServerOptions with) {
    const Result<void> loaded = TlsServer(std::move(with)).reload();
    return loaded ? std::string() : loaded.error().text;
  };
  EXPECT_HAS(refused({}), "TlsServerOptions::certificates and shared_keys are empty");
  EXPECT_HAS(refused({.certificates = {{one.certificate_file, two.key_file}}}), "is not that of the certificate in");
  EXPECT_HAS(refused({.certificates = {{folder.path().string() + "/absent", two.key_file}}}), "No such file");
  EXPECT_HAS(refused({.certificates = {{folder.path().string(), two.key_file}}}), "cannot read");
  EXPECT_HAS(refused({.certificates = {{one.key_file, one.key_file}}}), "has no certificate in PEM format");
  EXPECT_HAS(refused({.certificates = {{one.certificate_file, one.certificate_file}}}), "has no private key");
  EXPECT_HAS(refused({.certificates = {one}, .client_ca_file = one.key_file}), "has no certificate in PEM format");
  EXPECT_HAS(refused({.certificates = {one}, .crl_files = {one.key_file}}), "has no list of revoked certificates");
  // A file that is still being written: a part of the last certificate is not taken for the end.
  const std::string cut = folder.path().string() + "/cut.pem";
  const auto write_cut = [&](std::size_t bytes_less) {
    std::string text;
    for (const std::string& file : {one.certificate_file, two.certificate_file}) {
      std::ifstream in(file);
      text.append(std::istreambuf_iterator<char>(in), {});
    }
    text.resize(text.size() - bytes_less);
    std::ofstream(cut) << text;
  };
  write_cut(0);
  EXPECT_EQ(refused({.certificates = {{cut, one.key_file}}, .client_ca_file = cut}), "");
  for (const std::size_t bytes_less : {10, 100, 300}) {
    write_cut(bytes_less);
    EXPECT_HAS(refused({.certificates = {{cut, one.key_file}}}), cut + ": certificate 2 is cut or damaged (");
    EXPECT_HAS(refused({.certificates = {one}, .client_ca_file = cut}), cut + ": certificate 2 is cut or damaged (");
  }
  // A server does not start, and a client does not connect.
  options.security = TlsServer({.certificates = {{one.certificate_file, two.key_file}}});
  server = std::make_unique<Server>(options);
  EXPECT_TRUE(is_error(server->start(), ErrorCode::invalid_argument, "is not that of the certificate"));
  start();
  TlsClientOptions with = client_options();
  with.ca_file = "/absent";
  EXPECT_HAS(call(with), "cannot read /absent");
}

TEST_F(TlsCertificates, OfClientsAreDemandedAndBecomeTheIdentity) {
  tls_options.client_ca_file = authority.ca_file();
  security = nullptr;
  tls_options.certificates = {authority.issue("server")};
  options.security = TlsServer(tls_options);
  server = std::make_unique<Server>(options);
  server->register_handler<caller_of>();
  server->register_handler<echo>();
  ASSERT_TRUE(server->start());
  EXPECT_HAS(call(client_options()), "set TlsClientOptions::certificate");

  TlsClientOptions with = client_options();
  with.certificate = authority.issue(
      "client", {.subject = "storage-7", .names = "DNS:storage-7.example,URI:spiffe://example.org/storage"});
  std::vector<std::string> seen;
  for (const char* transport : {"stream", "shm"}) {
    // The second connection resumes the session.
    const TlsClient security_of_client(with);
    for (int i = 0; i < 2; ++i) {
      sync_wait([](std::string to, TlsClient tls, std::string over, std::vector<std::string>& out) -> Task<void> {
        ClientOptions client_options;
        client_options.security = tls;
        client_options.transports.required = over;
        Client client(client_options);
        auto connected = co_await client.connect(to);
        REQUIRE_OK(connected);
        auto reply = co_await client.call<caller_of>();
        REQUIRE_OK(reply);
        out.push_back(*reply);
      }(server->address(), security_of_client, transport, seen));
    }
    EXPECT_EQ(security_of_client.counters().resumed, 1U);
  }
  ASSERT_EQ(seen.size(), 4U);
  for (const std::string& one : seen) {
    EXPECT_EQ(one,
              "certificate CN=storage-7 by CN=authority main DNS:storage-7.example URI:spiffe://example.org/storage "
              "spiffe://example.org/storage");
  }
}

TEST_F(TlsCertificates, OfClientsAreRefusedWithTheReason) {
  tls_options.client_ca_file = authority.ca_file();
  start();
  security::tls::Authority other(folder.path().string(), "other");
  const auto with_client = [&](const TlsCertificate& certificate) {
    TlsClientOptions with = client_options();
    with.certificate = certificate;
    return call(with);
  };
  // The server logs its reason when the connection has ended, which may be after the client has received the alert.
  const auto logs = [&](const std::string& text) {
    return soon([&] { return logged().find(text) != std::string::npos; });
  };
  EXPECT_EQ(with_client(authority.issue("client")), "ok");
  EXPECT_HAS(with_client(authority.issue("client", {.ends_in_seconds = -60})), "certificate expired");
  EXPECT_TRUE(logs("the client's certificate (CN=localhost) or one of its issuers expired on ")) << logged();
  EXPECT_HAS(with_client(authority.issue("client", {.usage = "serverAuth"})), "alert");
  EXPECT_TRUE(logs("is not meant for a client")) << logged();
  EXPECT_HAS(with_client(other.issue("client")), "unknown CA");
  EXPECT_TRUE(logs("has an issuer that is not trusted (CN=authority other)")) << logged();
  EXPECT_HAS(with_client(authority.issue("client", {.comment_bytes = 40'000})), "alert");
  EXPECT_TRUE(logs("certificates of more than 32768 bytes (peer_certificate_bytes_max)")) << logged();
  EXPECT_EQ(with_client(authority.issue("client")), "ok");
}

// The server refuses them when it knows their length, so that it needs no memory for them.
TEST_F(TlsCertificates, OfAMegabyteAreRefusedBeforeTheyHaveArrived) {
  tls_options.client_ca_file = authority.ca_file();
  start();
  const TlsCertificate large = authority.issue("large", {.comment_bytes = 1'000'000});
  TlsClientOptions with = client_options();
  with.certificate = large;
  EXPECT_NE(call(with), "ok");
  const auto context =
      load({.certificates = {large}, .ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024});
  for (int round = 0; round < 8; ++round) {
    RawTls client(RawSocket::connected_to(server->address()),
                  std::make_unique<security::tls::TlsSession>(context, "localhost", "hawser", nullptr));
    security::tls::TlsSession& session = client.session();
    while (session.handshake() != security::tls::TlsSession::Progress::failed &&
           session.output().bytes().size() < 1'000'000) {
      client.flush();
      const std::optional<Octets> one = client.socket().receive(1);
      ASSERT_TRUE(one);
      session.input().append(*one);
    }
    ASSERT_GE(session.output().bytes().size(), 1'000'000U);
    client.socket().send(session.output().bytes().first(20'000));
    EXPECT_EQ(client.receive_end(), security::tls::TlsSession::Read::failed);
  }
  EXPECT_TRUE(soon([&] {
    return logged().find("certificates of more than 32768 bytes (peer_certificate_bytes_max)") != std::string::npos;
  })) << logged();
  EXPECT_TRUE(soon([&] { return security->counters().held_bytes == 0; }));
  with.certificate = authority.issue("client");
  EXPECT_EQ(call(with), "ok");
}

TEST_F(TlsCertificates, MayBeRevoked) {
  const TlsCertificate good = authority.issue("good");
  const TlsCertificate bad = authority.issue("bad");
  tls_options.certificates = {bad};
  start();
  TlsClientOptions with = client_options();
  with.crl_files = {authority.revoke({})};
  EXPECT_EQ(call(with), "ok");
  authority.revoke({bad});
  EXPECT_HAS(call(with), "was revoked by its issuer (CN=authority main)");
  authority.revoke({}, -60);
  EXPECT_HAS(call(with), "is too old: renew it in TlsClientOptions::crl_files");
  security::tls::Authority other(folder.path().string(), "other");
  with.crl_files = {other.revoke({})};
  EXPECT_HAS(call(with), "there is no list of revoked certificates of its issuer");
}

// The list of the root says which of the issuers between are revoked. It may be absent.
TEST_F(TlsCertificates, OfARevokedIssuerAreRefused) {
  const security::tls::Authority& root = authority;
  security::tls::Authority middle(folder.path().string(), "middle");
  // Signed by the root, with the name and the key of `middle`.
  const security::tls::X509Ptr issuer(X509_dup(middle.certificate()));
  ASSERT_EQ(ASN1_INTEGER_set(X509_get_serialNumber(issuer.get()), 777), 1);
  ASSERT_EQ(X509_set_issuer_name(issuer.get(), X509_get_subject_name(root.certificate())), 1);
  ASSERT_GT(X509_sign(issuer.get(), root.key(), EVP_sha256()), 0);
  const auto append = [&](const std::string& file) {
    const std::unique_ptr<std::FILE, security::tls::Released<std::fclose>> out(std::fopen(file.c_str(), "ab"));
    ASSERT_EQ(PEM_write_X509(out.get(), issuer.get()), 1);
  };
  const TlsCertificate issuer_files{(folder.path() / "issuer.pem").string()};
  append(issuer_files.certificate_file);
  TlsCertificate leaf = middle.issue("leaf");
  append(leaf.certificate_file);
  tls_options.certificates = {leaf};
  tls_options.client_ca_file = root.ca_file();
  tls_options.client_certificate_required = false;
  tls_options.crl_files = {middle.revoke({}), authority.revoke({})};
  start();
  TlsClientOptions with = client_options();
  EXPECT_EQ(call(with), "ok");
  with.crl_files = {middle.revoke({})};
  EXPECT_EQ(call(with), "ok") << "no list of the root";
  with.crl_files = {middle.revoke({}), authority.revoke({})};
  with.certificate = leaf;
  EXPECT_EQ(call(with), "ok");
  with.certificate = {};
  authority.revoke({issuer_files});
  EXPECT_HAS(call(with), "was revoked by its issuer (CN=authority main)");
  // The lists of all issuers in one file, of which the second one counts, too.
  const std::vector<std::string> apart = with.crl_files;
  const std::string joined = (folder.path() / "joined.pem").string();
  with.crl_files = {joined};
  std::string all;
  for (const std::string& file : apart)
    all += std::string(std::istreambuf_iterator<char>(std::ifstream(file).rdbuf()), {});
  std::ofstream(joined) << all;
  EXPECT_HAS(call(with), "was revoked by its issuer (CN=authority main)");
  std::ofstream(joined) << all.substr(0, all.size() - 100);
  EXPECT_HAS(call(with), "list of revoked certificates 2 is cut or damaged");
  with.crl_files = apart;
  with.crl_files = {};
  EXPECT_EQ(call(with), "ok");
  ASSERT_TRUE(security->reload());
  with.certificate = leaf;
  EXPECT_NE(call(with), "ok");
  EXPECT_TRUE(soon([&] { return logged().find("was revoked by its issuer (CN=authority main)") != std::string::npos; }))
      << logged();
  // A list of the root that is too old is not a reason to trust.
  authority.revoke({}, -60);
  with.certificate = {};
  with.crl_files = tls_options.crl_files;
  EXPECT_HAS(call(with), "is too old: renew it in TlsClientOptions::crl_files");
}

// A session is not resumed with a list that is too old for a handshake.
TEST_F(TlsCertificates, MayBeRevokedByALaterList) {
  tls_options.client_ca_file = authority.ca_file();
  tls_options.crl_files = {authority.revoke({}, 2)};
  start();
  TlsClientOptions with = client_options();
  with.certificate = authority.issue("client");
  const TlsClient shared(with);
  EXPECT_TRUE(soon([&] { return call(shared) != "ok"; }));
  EXPECT_TRUE(soon([&] {
    return logged().find("is too old: renew it in TlsServerOptions::crl_files") != std::string::npos;
  })) << logged();
}

// Texts about certificates are written to logs, and anybody may send one.
TEST_F(TlsCertificates, WithLongNamesAreQuotedInPart) {
  const security::tls::X509Ptr certificate(X509_new());
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  const std::string text(30'000, 'x');
  ASSERT_EQ(X509_NAME_add_entry_by_txt(name, "SN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.data()),
                                       static_cast<int>(text.size()), -1, 0),
            1);
  X509_set_issuer_name(certificate.get(), name);
  std::string names;
  for (int i = 0; i < 1000; ++i) names += (i == 0 ? "DNS:host" : ",DNS:host") + std::to_string(i);
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, NID_subject_alt_name, names.c_str());
  ASSERT_EQ(X509_add_ext(certificate.get(), extension, -1), 1);
  X509_EXTENSION_free(extension);
  for (const int error : {X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_CERT_UNTRUSTED, X509_V_ERR_CERT_REVOKED}) {
    const std::string shown = security::tls::verify_text(error, certificate.get(), "host", "server");
    EXPECT_LT(shown.size(), 1000U);
    EXPECT_HAS(shown, "SN=xxx");
  }
}

TEST_F(TlsCertificates, AreNotDemandedForAnImpossibleName) {
  start();
  for (const std::string& name : {std::string(300, 'a'), std::string(".example"), std::string("a\0b", 3)}) {
    TlsClientOptions with = client_options();
    with.server_name = name;
    EXPECT_HAS(call(with), "set TlsClientOptions::server_name to a host name of at most 255 bytes");
  }
}

// The threads of handshakes outlive a server, whose log may refer to anything that lives as long as the server.
TEST_F(TlsCertificates, ThatChangeAreLoggedByTheLoop) {
  std::atomic<int> on_loop{0};
  std::atomic<int> elsewhere{0};
  options.loop.log = LogSink([&](LogLevel, std::string_view component, std::string_view) {
    if (component == "tls") ++(Loop::current() != nullptr ? on_loop : elsewhere);
  });
  tls_options.reload_interval = std::chrono::seconds(0);
  start();
  authority.issue("server", {.names = "DNS:renewed.example"});
  EXPECT_HAS(call(client_options()), "is valid for DNS:renewed.example");
  EXPECT_EQ(on_loop.load(), 1);
  EXPECT_EQ(elsewhere.load(), 0);
}

TEST_F(TlsCertificates, AreSelectedByTheHostName) {
  tls_options.certificates = {authority.issue("first", {.subject = "first"}),
                              authority.issue("a", {.subject = "a", .names = "DNS:a.example"}),
                              authority.issue("b", {.subject = "b", .names = "DNS:*.b.example"})};
  start();
  for (const std::string name : {"a.example", "x.b.example", "localhost", "127.0.0.1"}) {
    TlsClientOptions with = client_options();
    with.server_name = name;
    EXPECT_EQ(call(with), "ok") << name;
  }
  TlsClientOptions with = client_options();
  with.server_name = "c.example";
  EXPECT_HAS(call(with), "not for 'c.example'");
}

// A name such as storage.shop.svc.cluster.local. is looked up without search domains. Some clients send the dot to the
// server.
TEST_F(TlsCertificates, DoNotHaveTheDotOfTheRoot) {
  tls_options.certificates = {authority.issue("first"),
                              authority.issue("a", {.subject = "a", .names = "DNS:a.example,DNS:*.b.example"})};
  start();
  TlsClientOptions with = client_options();
  for (const std::string name : {"a.example.", "A.Example.", "x.b.example.", "localhost."}) {
    with.server_name = name;
    EXPECT_EQ(call(with), "ok") << name;
  }
  for (const std::string name : {"c.example.", "a.example..", "."}) {
    with.server_name = name;
    EXPECT_NE(call(with), "ok") << name;
  }
  const auto context = load({.server = true, .certificates = tls_options.certificates});
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(context->select("a.example."), context->select("a.example"));
  EXPECT_NE(context->select("a.example."), context->select(""));
}

// OpenSSL prefers keys of EC to those of RSA.
TEST_F(TlsCertificates, AreSelectedByTheHostNameWhateverTheirKeys) {
  tls_options.certificates = {authority.issue("ec", {.names = "DNS:ec.example"}),
                              authority.issue("rsa", {.names = "DNS:rsa.example", .rsa_bits = 2048}),
                              authority.issue("ed", {.names = "DNS:ed.example", .ed25519 = true})};
  start();
  for (const std::string name : {"rsa.example", "ed.example", "ec.example"}) {
    TlsClientOptions with = client_options();
    with.server_name = name;
    EXPECT_EQ(call(with), "ok") << name;
  }
}

// Two certificates with the same names and different keys: each client gets one whose key it supports.
TEST_F(TlsCertificates, MayHaveTheSameNamesAndOtherKinds) {
  const auto server_context = load({.server = true,
                                    .certificates = {authority.issue("ec"), authority.issue("rsa", {.rsa_bits = 2048}),
                                                     authority.issue("other", {.names = "DNS:o.example"})},
                                    .peer_certificate_bytes_max = 32 * 1024});
  for (const char* const algorithms : {"RSA-PSS+SHA256:RSA+SHA256", "ECDSA+SHA256"}) {
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      // An address is not sent to the server.
      for (const char* const host : {"localhost", "127.0.0.1"}) {
        const auto client_context = load({.verify = false, .peer_certificate_bytes_max = 32 * 1024});
        SSL_CTX_set_max_proto_version(client_context->get(), version);
        ASSERT_EQ(SSL_CTX_set1_sigalgs_list(client_context->get(), algorithms), 1);
        security::tls::TlsSession client(client_context, host, "hawser", nullptr);
        security::tls::TlsSession server_end(server_context, std::string("\x06hawser"));
        ASSERT_TRUE(shake_hands(client, server_end)) << algorithms << version << host << server_end.error().text;
        EXPECT_TRUE(security::tls::valid_for(SSL_get0_peer_certificate(client.ssl()), "localhost"));
      }
    }
  }
}

TEST_F(TlsCertificates, AreReloadedWithoutTheLossOfAConnection) {
  tls_options.reload_interval = std::chrono::seconds(0);
  tls_options.certificates = {authority.issue("server")};
  start();
  const std::string certificate = tls_options.certificates.front().certificate_file;
  const auto change = [&] {
    // A file that cannot be used.
    std::filesystem::rename(certificate, certificate + ".old");
    EXPECT_EQ(call(client_options()), "ok");
    EXPECT_EQ(security->counters().reloads_failed, 1U);
    EXPECT_HAS(logged(), "cannot be used; the old ones stay: cannot read");
    EXPECT_EQ(call(client_options()), "ok");
    EXPECT_EQ(security->counters().reloads_failed, 1U);
    // Another certificate.
    authority.issue("server", {.names = "DNS:renewed.example"});
    EXPECT_HAS(call(client_options()), "is valid for DNS:renewed.example");
    EXPECT_EQ(security->counters().reloads, 1U);
  };
  ClientOptions with;
  with.security = TlsClient(client_options());
  with.transports.required = "stream";
  Loop loop;
  Client client(loop, with);
  const Result<void> connected = loop.run(client.connect(server->address()));
  ASSERT_TRUE(connected) << error_of(connected);
  change();
  const auto ask = [](Client& of) -> Task<bool> {
    auto reply = co_await of.call<echo>("still here");
    co_return reply.has_value();
  };
  EXPECT_TRUE(loop.run(ask(client)));
  EXPECT_TRUE(security->reload());
}

TEST_F(TlsCertificates, AreInspected) {
  const std::int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const TlsCertificate good = authority.issue("good", {.ends_in_seconds = 100 * 24 * 3600});
  const Result<TlsCertificateReport> report = inspect_certificate(good, "localhost", now);
  ASSERT_TRUE(report) << error_of(report);
  EXPECT_EQ(report->subject, "CN=localhost");
  EXPECT_EQ(report->issuer, "CN=authority main");
  EXPECT_EQ(report->key, "EC 256 bits");
  EXPECT_EQ(report->problems, std::vector<std::string>());
  EXPECT_NEAR(static_cast<double>(report->ends), static_cast<double>(now + 100 * 24 * 3600), 60.0);
  const auto problem = [&](const TlsCertificate& files, std::int64_t at, const std::string& host = "") {
    const Result<TlsCertificateReport> inspected = inspect_certificate(files, host, at);
    if (!inspected) return inspected.error().text;
    return inspected->problems.empty() ? std::string() : inspected->problems.front();
  };
  EXPECT_HAS(problem(good, now + 99 * 24 * 3600), "in less than 14 days");
  EXPECT_HAS(problem(good, now + 101 * 24 * 3600), "it expired on");
  EXPECT_HAS(problem(good, now - 7200), "it is not valid before");
  EXPECT_HAS(problem(good, now, "other.example"), "not valid for 'other.example'");
  const TlsCertificate other = authority.issue("other");
  EXPECT_HAS(problem({good.certificate_file, other.key_file}, now), "is not that of this certificate");
  const TlsCertificate nameless = authority.issue("nameless", {.names = "", .ends_in_seconds = 100 * 24 * 3600});
  EXPECT_HAS(problem(nameless, now), "no subject alternative name");
  const TlsCertificate weak = authority.issue("weak", {.ends_in_seconds = 100 * 24 * 3600, .rsa_bits = 1024});
  EXPECT_HAS(problem(weak, now), "its key is weak (RSA 1024 bits)");
  const TlsCertificate mail = authority.issue("mail", {.usage = "emailProtection", .ends_in_seconds = 100 * 24 * 3600});
  EXPECT_HAS(problem(mail, now), "neither serverAuth nor clientAuth");
  EXPECT_HAS(problem({folder.path().string() + "/absent", ""}, now), "cannot read");
}

}  // namespace
}  // namespace hawser
