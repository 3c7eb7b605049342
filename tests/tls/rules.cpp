#include <gtest/gtest.h>
#include <openssl/x509v3.h>

#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hawser/authorization.h"
#include "security/tls/certificate.h"
#include "security/tls/openssl.h"
#include "tests/tls/fixture.h"

// Rules of a server whose clients prove who they are by TLS, or do not.
namespace hawser {
namespace tls_rules {

std::string for_storage(Context& context) { return context.identity().text(); }
std::string for_named(Context& context) { return context.identity().subject; }
std::string for_key(Context& context) { return context.identity().subject; }

}  // namespace tls_rules

namespace {

using namespace testing_tools;
using tls_rules::for_key;
using tls_rules::for_named;
using tls_rules::for_storage;

class TlsRules : public TlsFixture {
 protected:
  void start_with_rules(TlsPolicy policy) {
    tls_options.certificates = {authority.issue("server")};
    tls_options.client_ca_file = authority.ca_file();
    tls_options.client_certificate_required = false;
    const std::string file = folder.path().string() + "/shared.key";
    std::ofstream(file) << std::string(64, 'a') << "\n";
    tls_options.shared_keys = {{"CN=storage", file}};
    tls_options.policy = policy;
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    server->use(BearerTokens().add("a token of 16 bytes", Identity{.subject = "CN=storage"}));
    server->use(Authorization()
                    .allow(method_name<for_storage>, spiffe("spiffe://example.org/storage"))
                    .allow(method_name<for_named>, certificate_subject("CN=storage"))
                    .allow(method_name<for_key>, shared_key("CN=storage")));
    server->register_handler<for_storage, for_named, for_key>();
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // The methods that are served: "storage", "named", "key".
  std::string served(ClientOptions with, std::vector<std::string> metadata = {}) {
    std::string out;
    with.connect_timeout = patience;
    with.call_timeout = patience;
    CallOptions call;
    for (const std::string& value : metadata) call.metadata.emplace_back("authorization", value);
    sync_wait([](std::string to, ClientOptions given, CallOptions asked, std::string& names) -> Task<void> {
      Client client(std::move(given));
      auto connected = co_await client.connect(to);
      if (!connected) {
        names = "not connected";
        co_return;
      }
      auto storage = co_await client.call<for_storage>(asked);
      if (storage) names += "storage ";
      auto named = co_await client.call<for_named>(asked);
      if (named) names += "named ";
      auto key = co_await client.call<for_key>(asked);
      if (key) names += "key ";
    }(server->address(), std::move(with), std::move(call), out));
    return out;
  }
  static ClientOptions over(const char* transport) {
    ClientOptions with;
    with.transports.required = transport;
    return with;
  }
};

// The same name as a certificate, as a key and as a token is not the same caller. Plain text and TLS share the port.
TEST_F(TlsRules, AreKeptByEveryKindOfClientOnOnePort) {
  start_with_rules(TlsPolicy::allowed);
  for (const char* const transport : {"stream", "shm"}) {
    ClientOptions with = over(transport);
    EXPECT_EQ(served(with), "") << transport;
    EXPECT_EQ(served(with, {"Bearer a token of 16 bytes"}), "") << transport;

    with.security = TlsClient(client_options());
    EXPECT_EQ(served(with), "") << transport;

    TlsClientOptions tls = client_options();
    tls.certificate = authority.issue("named", {.subject = "storage"});
    with.security = TlsClient(tls);
    // The second connection resumes the session of the first.
    EXPECT_EQ(served(with), "named ") << transport;
    EXPECT_EQ(served(with), "named ") << transport;
    // A token replaces the certificate for its call.
    EXPECT_EQ(served(with, {"Bearer a token of 16 bytes"}), "") << transport;
    EXPECT_EQ(served(with, {"Bearer another one of them"}), "") << transport;

    tls.certificate = authority.issue("other", {.subject = "other", .names = "URI:spiffe://example.org/storage"});
    with.security = TlsClient(tls);
    EXPECT_EQ(served(with), "storage ") << transport;
    EXPECT_EQ(served(with), "storage ") << transport;

    TlsClientOptions keyed;
    keyed.shared_key = tls_options.shared_keys.front();
    with.security = TlsClient(keyed);
    EXPECT_EQ(served(with), "key ") << transport;
  }
  EXPECT_GT(security->counters().resumed, 0U);
}

TEST_F(TlsRules, OddSpiffeIdsOfCertificatesAreNone) {
  start_with_rules(TlsPolicy::required);
  int number = 0;
  for (const char* const names :
       {"URI:spiffe://example.org/storage,URI:spiffe://example.org/other",
        "URI:spiffe://example.org/storage,URI:https://example.org/storage", "URI:SPIFFE://example.org/storage",
        "URI:spiffe://Example.org/storage", "URI:spiffe://example.org./storage", "URI:spiffe://example.org/storage/",
        "URI:spiffe://example.org//storage", "URI:spiffe://example.org/./storage",
        "URI:spiffe://example.org/x/../storage", "URI:spiffe://example.org:443/storage",
        "URI:spiffe://example.org/storage?a", "URI:spiffe://example.org/%73torage", "DNS:spiffe.example.org",
        "URI:spiffe://example.org/Storage", "URI:spiffe://example.org/storage.",
        "URI:spiffe://example.org.example.com/storage"}) {
    TlsClientOptions tls = client_options();
    tls.certificate = authority.issue("odd" + std::to_string(++number), {.subject = "odd", .names = names});
    ClientOptions with = over("stream");
    with.security = TlsClient(tls);
    EXPECT_EQ(served(with), "") << names;
  }
}

// Zero bytes end no name.
TEST(TlsIdentity, NamesHaveTheirWholeLength) {
  const auto identity_with = [](std::string_view uri, std::string_view dns, std::string_view name) {
    const security::tls::X509Ptr certificate(X509_new());
    GENERAL_NAMES* const names = sk_GENERAL_NAME_new_null();
    for (const auto& [type, text] : {std::pair<int, std::string_view>{GEN_URI, uri}, {GEN_DNS, dns}}) {
      GENERAL_NAME* const one = GENERAL_NAME_new();
      ASN1_IA5STRING* const value = ASN1_IA5STRING_new();
      ASN1_STRING_set(value, text.data(), static_cast<int>(text.size()));
      GENERAL_NAME_set0_value(one, type, value);
      sk_GENERAL_NAME_push(names, one);
    }
    X509_add1_ext_i2d(certificate.get(), NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT);
    GENERAL_NAMES_free(names);
    X509_NAME* const subject = X509_NAME_new();
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.data()),
                               static_cast<int>(name.size()), -1, 0);
    X509_set_subject_name(certificate.get(), subject);
    X509_NAME_free(subject);
    return security::tls::identity_of(certificate.get());
  };
  const Identity plain = identity_with("spiffe://example.org/storage", "a.example", "storage");
  EXPECT_EQ(plain.spiffe_id, "spiffe://example.org/storage");
  EXPECT_TRUE(certificate_subject("CN=storage")(plain));
  const std::string zero("\0", 1);
  const Identity odd = identity_with("spiffe://example.org/storage" + zero, "a.example" + zero + ".evil",
                                     "storage" + zero + "\n,O=admin");
  EXPECT_EQ(odd.spiffe_id, "");
  ASSERT_EQ(odd.alt_names.size(), 2U);
  EXPECT_EQ(odd.alt_names[0].size(), std::string_view("URI:spiffe://example.org/storage").size() + 1);
  EXPECT_NE(odd.alt_names[1], "DNS:a.example");
  EXPECT_FALSE(certificate_subject("CN=storage")(odd));
  EXPECT_FALSE(certificate_subject("O=admin")(odd));
  EXPECT_EQ(odd.subject.find('\n'), std::string::npos) << odd.subject;
  EXPECT_EQ(odd.text().find_first_of(std::string_view("\n\0", 2)), std::string::npos);
}

}  // namespace
}  // namespace hawser
