// Keys that both sides have, instead of certificates.
#include <fstream>
#include <string>
#include <utility>

#include "hawser/identity.h"
#include "tests/tls/fixture.h"
#include "tests/tls/wire_tap.h"

namespace hawser {
namespace {

using namespace testing_tools;

std::string who_am_i(Context& context) { return context.identity().text(); }

class TlsSharedKeys : public TlsFixture {
 protected:
  TlsSharedKey key(const std::string& name, const std::string& digits) {
    const std::string path = folder.path().string() + "/" + name + ".key";
    std::ofstream(path) << digits;
    return {name, path};
  }
  // A key of 32 bytes whose digits depend on `seed`.
  TlsSharedKey key(const std::string& name, char seed) { return key(name, std::string(64, seed) + "\n"); }
  TlsClientOptions client_with(TlsSharedKey of) {
    TlsClientOptions made;
    made.shared_key = std::move(of);
    return made;
  }
  // A server without certificates.
  void start_with(std::vector<TlsSharedKey> keys, bool with_certificate = false) {
    tls_options.shared_keys = std::move(keys);
    if (with_certificate) tls_options.certificates = {authority.issue("server")};
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    server->register_handler<echo>();
    server->register_handler<who_am_i>();
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  std::string identity(const TlsClientOptions& tls) {
    std::string text;
    ClientOptions with{.connect_timeout = patience, .call_timeout = patience};
    with.security = TlsClient(tls);
    sync_wait([](std::string to, ClientOptions given, std::string& out) -> Task<void> {
      Client client(std::move(given));
      auto connected = co_await client.connect(to);
      REQUIRE_OK(connected);
      auto reply = co_await client.call<who_am_i>();
      REQUIRE_OK(reply);
      out = *reply;
    }(server->address(), std::move(with), text));
    return text;
  }
  std::string refusal(std::vector<TlsSharedKey> keys) {
    const Result<void> loaded = TlsServer({.shared_keys = std::move(keys)}).reload();
    return loaded ? "" : loaded.error().text;
  }
};

TEST_F(TlsSharedKeys, ProveBothSidesAndNameTheClient) {
  start_with({key("storage", 'a'), key("backup", 'b')});
  EXPECT_EQ(call(client_with(key("storage", 'a'))), "ok");
  EXPECT_EQ(used_transport, "shm");
  EXPECT_EQ(security->counters().paths_proved, 1U);
  EXPECT_EQ(identity(client_with(key("storage", 'a'))), "shared_key storage");
  EXPECT_EQ(identity(client_with(key("backup", 'b'))), "shared_key backup");
  EXPECT_EQ(security->counters().resumed, 0U);
  EXPECT_EQ(security->counters().handshakes, 3U);
}

TEST_F(TlsSharedKeys, SealPaths) {
  tls_options.protection = TlsProtection::sealed_messages;
  start_with({key("storage", 'a')});
  ClientOptions with;
  with.transports.required = "shm";
  EXPECT_EQ(call(std::string(100'000, 'x'), TlsClient(client_with(key("storage", 'a'))), with), "ok");
}

TEST_F(TlsSharedKeys, RefuseOtherKeysAndOtherNames) {
  start_with({key("storage", 'a')});
  EXPECT_HAS(call(client_with(key("storage", 'c'))), "TLS handshake failed");
  EXPECT_HAS(call(client_with(key("other", 'a'))), "TLS handshake failed");
  EXPECT_EQ(security->counters().handshakes, 0U);
}

TEST_F(TlsSharedKeys, RefuseClientsWithoutOne) {
  start_with({key("storage", 'a')});
  EXPECT_HAS(call(client_options()), "TLS handshake failed");
  TlsClientOptions trusting;
  trusting.accept_any_server = true;
  EXPECT_HAS(call(trusting), "TLS handshake failed");
}

// Whoever has a certificate that the system trusts, or any other, is not the server.
TEST_F(TlsSharedKeys, AClientWithOneAcceptsNoCertificate) {
  start();
  for (const bool any : {false, true}) {
    TlsClientOptions with = client_with(key("storage", 'a'));
    with.ca_file = authority.ca_file();
    with.accept_any_server = any;
    EXPECT_HAS(call(with), "TLS handshake failed");
  }
}

TEST_F(TlsSharedKeys, StandBesideCertificates) {
  start_with({key("storage", 'a')}, true);
  EXPECT_EQ(identity(client_with(key("storage", 'a'))), "shared_key storage");
  const TlsClient certificates(client_options());
  for (int round = 0; round < 3; ++round) EXPECT_EQ(call("hi", certificates), "ok");  // They may resume.
  EXPECT_HAS(call(client_with(key("storage", 'b'))), "TLS handshake failed");
  EXPECT_HAS(call(client_with(key("nobody", 'a'))), "TLS handshake failed");
}

TEST_F(TlsSharedKeys, AreReloaded) {
  start_with({key("storage", 'a')});
  key("storage", 'd');
  ASSERT_TRUE(security->reload());
  EXPECT_EQ(call(client_with({"storage", folder.path().string() + "/storage.key"})), "ok");
  const TlsSharedKey old = key("old", 'a');
  EXPECT_HAS(call(client_with({"storage", old.file})), "TLS handshake failed");
}

TEST_F(TlsSharedKeys, AreLongRandomAndHexadecimal) {
  EXPECT_EQ(refusal({key("a", std::string(128, '1'))}), "");
  EXPECT_EQ(refusal({key("a", " 12 \n" + std::string(62, '1'))}), "");
  for (const std::string& digits : {std::string(), std::string(62, '1'), std::string(65, '1'), std::string(130, '1'),
                                    std::string(64, 'g'), std::string(63, '1') + "-", std::string(1 << 20, '1')}) {
    EXPECT_HAS(refusal({key("a", digits)}), "is not a shared key: write 64 to 128 hexadecimal digits") << digits.size();
  }
  EXPECT_HAS(refusal({{"a", "/nowhere/a.key"}}), "cannot read /nowhere/a.key");
  EXPECT_HAS(refusal({{"", key("a", '1').file}}), "has 0 bytes: give it 1 to 128");
  EXPECT_HAS(refusal({{std::string(129, 'n'), key("a", '1').file}}), "has 129 bytes");
  EXPECT_HAS(refusal({key("a", '1'), key("a", '2')}), "two shared keys have the name 'a'");
  EXPECT_HAS(refusal({}), "a server needs a certificate or a key");
}

// Reflection (RFC 9257, 4.1): somebody changes the route of a client's packets, so that they return to the server of
// the client's own process. The client notices that if each server has a key of its own.
TEST_F(TlsSharedKeys, OfEachServerPreventReflectionAndACommonOneDoesNot) {
  for (const bool common : {true, false}) {
    SCOPED_TRACE(common);
    const TlsSharedKey of_this = key(common ? "cluster" : "this", 'a');
    const TlsSharedKey of_other = common ? of_this : key("other", 'b');
    start_with({of_this});
    WireTap reroute(server->address());  // Has the address of the other server.
    ClientOptions with{.connect_timeout = patience, .call_timeout = patience};
    with.transports.required = "stream";
    with.security = TlsClient(client_with(of_other));
    std::string outcome;
    sync_wait([](std::string to, ClientOptions given, std::string& out) -> Task<void> {
      Client client(std::move(given));
      auto connected = co_await client.connect(to);
      out = error_of(connected);
      if (!connected) co_return;
      auto reply = co_await client.call<who_am_i>();
      REQUIRE_OK(reply);
      out = *reply;
    }(reroute.address(), std::move(with), outcome));
    if (common) {
      EXPECT_EQ(outcome, "shared_key cluster") << "the client is connected with its own process";
    } else {
      EXPECT_HAS(outcome, "TLS handshake failed");
      EXPECT_EQ(security->counters().handshakes, 0U);
    }
    server.reset();
  }
}

}  // namespace
}  // namespace hawser
