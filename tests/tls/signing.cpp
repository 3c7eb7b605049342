#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "hawser/identity.h"
#include "tests/tls/fixture.h"
#include "tests/tls/raw_tls.h"
#include "tests/tls/software_signer.h"

// Private keys that are functions (TlsCertificate::sign).
namespace hawser {

namespace tls_test {

std::string name_of_caller(Context& context) { return context.identity().subject; }

}  // namespace tls_test

namespace {

using namespace testing_tools;
using security::tls::TlsSession;
using tls_test::name_of_caller;
using Algorithm = TlsSigningRequest::Algorithm;

struct KindOfKey {
  const char* name;
  security::tls::Request request;
  Algorithm tls12;
  Algorithm tls13;
};

std::vector<KindOfKey> kinds_of_keys() {
  return {{"ec", {}, Algorithm::ecdsa, Algorithm::ecdsa},
          {"rsa", {.rsa_bits = 2048}, Algorithm::rsa_pss, Algorithm::rsa_pss},
          {"ed25519", {.ed25519 = true}, Algorithm::ed25519, Algorithm::ed25519}};
}

class TlsSigning : public TlsFixture {
 protected:
  // A certificate whose key file does not exist any more.
  TlsCertificate issue_signed(const std::string& name, const security::tls::Request& request = {}) {
    const TlsCertificate files = authority.issue(name, request);
    signer = std::make_shared<SoftwareSigner>(files.key_file);
    std::filesystem::remove(files.key_file);
    return with_signer(files, signer);
  }
  std::string refusal_of(TlsServerOptions with) {
    const Result<void> loaded = TlsServer(std::move(with)).reload();
    return loaded ? std::string() : loaded.error().text;
  }
  // A server whose function can be replaced.
  void start_with(TlsSign sign) {
    TlsCertificate certificate = issue_signed("server");
    replaced = std::make_shared<TlsSign>(certificate.sign);
    certificate.sign = [this, used = replaced](const TlsSigningRequest& request) {
      TlsSign now;
      {
        const std::lock_guard lock(replaced_mutex);
        now = *used;
      }
      return now(request);
    };
    tls_options.certificates = {certificate};
    start();
    const std::lock_guard lock(replaced_mutex);
    *replaced = std::move(sign);
  }
  bool logs(const std::string& text) {
    return soon([&] { return logged().find(text) != std::string::npos; });
  }

  std::shared_ptr<SoftwareSigner> signer;
  std::mutex replaced_mutex;
  std::shared_ptr<TlsSign> replaced;
};

// Both ends sign by functions: the server always, the client with its certificate.
TEST_F(TlsSigning, WorksWithEachKindOfKeyInEachVersion) {
  for (const KindOfKey& kind : kinds_of_keys()) {
    for (const bool tls12 : {false, true}) {
      SCOPED_TRACE(std::string(kind.name) + (tls12 ? ", TLS 1.2" : ", TLS 1.3"));
      security::tls::ContextOptions server_options{.server = true,
                                                   .ca_file = authority.ca_file(),
                                                   .peer_certificate_required = true,
                                                   .peer_certificate_bytes_max = 32 * 1024};
      server_options.certificates = {issue_signed("server", kind.request)};
      const std::shared_ptr<SoftwareSigner> of_server = signer;
      security::tls::ContextOptions client_options{.ca_file = authority.ca_file(),
                                                   .peer_certificate_bytes_max = 32 * 1024};
      client_options.certificates = {issue_signed("client", kind.request)};
      const std::shared_ptr<SoftwareSigner> of_client = signer;
      const auto server_context = load(server_options);
      const auto client_context = load(client_options);
      ASSERT_TRUE(server_context != nullptr && client_context != nullptr);
      EXPECT_EQ(of_server->calls, 1) << "the trial";
      EXPECT_EQ(of_client->calls, 1) << "the trial";
      if (tls12) SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
      TlsSession client(client_context, "localhost", "hawser", nullptr);
      TlsSession server_end(server_context, std::string("\x06hawser"));
      ASSERT_TRUE(shake_hands(client, server_end)) << client.error().text << server_end.error().text;
      EXPECT_EQ(SSL_version(client.ssl()), tls12 ? TLS1_2_VERSION : TLS1_3_VERSION);
      EXPECT_EQ(of_server->calls, 2);
      EXPECT_EQ(of_client->calls, 2);
      EXPECT_EQ(of_server->last, tls12 ? kind.tls12 : kind.tls13);
      EXPECT_EQ(of_client->last, tls12 ? kind.tls12 : kind.tls13);
      EXPECT_EQ(server_options.signing->made, 2U);
      EXPECT_EQ(server_options.signing->failed, 0U);
      write_text(client, "question");
      move_bytes(client, server_end);
      EXPECT_EQ(received_by(server_end), "question");
      // A resumed session needs no signature.
      EXPECT_EQ(received_by(client), "");
      move_bytes(server_end, client);
      EXPECT_EQ(received_by(client), "");
      security::tls::SslSessionPtr kept = client_context->take("localhost");
      ASSERT_NE(kept, nullptr);
      TlsSession again(client_context, "localhost", "hawser", std::move(kept));
      TlsSession other_end(server_context, std::string("\x06hawser"));
      ASSERT_TRUE(shake_hands(again, other_end)) << again.error().text << other_end.error().text;
      EXPECT_TRUE(again.resumed());
      EXPECT_EQ(of_server->calls, 2);
      EXPECT_EQ(of_client->calls, 2);
    }
  }
}

// A peer of TLS 1.2 that knows no PSS.
TEST_F(TlsSigning, UsesPkcs1ForOldPeers) {
  security::tls::ContextOptions server_options{.server = true, .peer_certificate_bytes_max = 32 * 1024};
  server_options.certificates = {issue_signed("server", {.rsa_bits = 2048})};
  const auto server_context = load(server_options);
  const auto client_context = load({.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024});
  for (const auto& [algorithms, expected] : {std::pair("RSA+SHA256:ECDSA+SHA256", TlsSigningRequest::Hash::sha256),
                                             std::pair("RSA+SHA384:ECDSA+SHA256", TlsSigningRequest::Hash::sha384),
                                             std::pair("RSA+SHA512:ECDSA+SHA256", TlsSigningRequest::Hash::sha512)}) {
    SSL_CTX_set_max_proto_version(client_context->get(), TLS1_2_VERSION);
    ASSERT_EQ(SSL_CTX_set1_sigalgs_list(client_context->get(), algorithms), 1);
    TlsSession client(client_context, "localhost", "hawser", nullptr);
    TlsSession server_end(server_context, std::string("\x06hawser"));
    ASSERT_TRUE(shake_hands(client, server_end)) << client.error().text << server_end.error().text;
    EXPECT_EQ(signer->last, Algorithm::rsa_pkcs1);
    EXPECT_EQ(signer->last_hash, expected);
  }
}

TEST_F(TlsSigning, NeverRunsOnALoop) {
  tls_options.certificates = {issue_signed("server")};
  tls_options.client_ca_file = authority.ca_file();
  const std::shared_ptr<SoftwareSigner> of_server = signer;
  start();
  for (int i = 0; i < 3; ++i) {
    TlsClientOptions with = client_options();
    with.certificate = issue_signed("client");
    EXPECT_EQ(call(with), "ok");
    EXPECT_EQ(signer->calls, 2);
    EXPECT_EQ(signer->on_loop, 0);
  }
  EXPECT_EQ(of_server->calls, 4);
  EXPECT_EQ(of_server->on_loop, 0);
  EXPECT_EQ(security->counters().signatures, 4U);
  EXPECT_EQ(security->counters().signatures_failed, 0U);
  // Without a client's certificate, the end of the handshake runs on the loop.
  server.reset();
  tls_options.client_ca_file.clear();
  start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(client_options()), "ok");
  EXPECT_EQ(of_server->on_loop, 0);
}

TEST_F(TlsSigning, IsRefusedWhereHandshakesRunOnLoops) {
  tls_options.certificates = {issue_signed("server")};
  TlsServerOptions without = tls_options;
  without.handshake_threads = 0;
  EXPECT_HAS(refusal_of(without), "TlsServerOptions::handshake_threads is 0");
  start();
  TlsClientOptions with = client_options();
  with.certificate = issue_signed("client");
  with.handshake_threads = 0;
  EXPECT_HAS(call(with), "TlsClientOptions::handshake_threads is 0");
  // Whoever performs a handshake on a loop nevertheless gets no signature.
  const auto server_context = load({.server = true, .certificates = tls_options.certificates});
  const auto client_context = load({.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024});
  TlsSession client(client_context, "localhost", "hawser", nullptr);
  TlsSession server_end(server_context, std::string("\x06hawser"));
  Loop loop({.log = no_log()});
  const bool done = loop.run(
      [](TlsSession& one, TlsSession& other) -> Task<bool> { co_return shake_hands(one, other); }(client, server_end));
  EXPECT_FALSE(done);
  EXPECT_HAS(server_end.error().text, "does not sign on the thread of a loop: set handshake_threads to 1 or more");
}

TEST_F(TlsSigning, MustBeThatOfTheCertificateWhenTheServerStarts) {
  const TlsCertificate one = issue_signed("one");
  TlsCertificate other = issue_signed("other");
  const std::string own = other.certificate_file;
  other.certificate_file = one.certificate_file;
  EXPECT_HAS(refusal_of({.certificates = {other}}),
             "not one of the certificate's key (EC 256 bits): sign with the "
             "private key of this certificate");
  TlsCertificate both = one;
  both.key_file = own;
  EXPECT_HAS(refusal_of({.certificates = {both}}), "has two keys: set either TlsCertificate::key_file or");
  TlsCertificate dead = one;
  dead.sign = [](const TlsSigningRequest&) -> Result<std::vector<std::byte>> {
    return fail(ErrorCode::unavailable, "the vault is closed");
  };
  EXPECT_HAS(refusal_of({.certificates = {dead}}), "did not sign: the vault is closed");
  options.security = TlsServer({.certificates = {dead}});
  server = std::make_unique<Server>(options);
  EXPECT_TRUE(is_error(server->start(), ErrorCode::invalid_argument, "the vault is closed"));
  const auto inspected = inspect_certificate(dead, "localhost", 0);
  ASSERT_TRUE(inspected);
  EXPECT_HAS(inspected->problems.back(), "the vault is closed");
}

struct Speechless : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

TEST_F(TlsSigning, FailuresEndTheHandshakeWithTheReason) {
  using Signature = Result<std::vector<std::byte>>;
  const std::vector<std::pair<TlsSign, std::string>> wrong = {
      {[](const TlsSigningRequest&) -> Signature { return fail(ErrorCode::unavailable, "the vault is closed"); },
       "did not sign: the vault is closed"},
      {[](const TlsSigningRequest&) -> Signature { throw std::runtime_error("no vault"); },
       "did not sign: an exception was thrown: no vault"},
      {[](const TlsSigningRequest&) -> Signature { throw 7; }, "did not sign: an exception was thrown"},
      {[](const TlsSigningRequest&) -> Signature { throw Speechless(); },
       "did not sign: an exception was thrown: an exception without a text"},
      {[](const TlsSigningRequest&) { return Signature(std::vector<std::byte>()); }, "made a signature of 0 bytes"},
      {[](const TlsSigningRequest&) { return Signature(std::vector<std::byte>(64)); }, "made a signature of 64 bytes"},
      {[](const TlsSigningRequest&) { return Signature(std::vector<std::byte>(1 << 20)); },
       "made a signature of 1048576 bytes that is not one of the certificate's key (EC 256 bits)"},
  };
  start_with({});
  const TlsSign good = [used = signer](const TlsSigningRequest& request) { return (*used)(request); };
  std::uint64_t failures = 0;
  for (const auto& [sign, text] : wrong) {
    {
      const std::lock_guard lock(replaced_mutex);
      *replaced = sign;
    }
    EXPECT_HAS(call(client_options()), "alert");
    EXPECT_TRUE(logs(text)) << text << "\n" << logged();
    ++failures;
    EXPECT_EQ(security->counters().signatures_failed, failures);
    EXPECT_EQ(security->counters().handshakes_failed, failures);
    // The next client is served.
    {
      const std::lock_guard lock(replaced_mutex);
      *replaced = good;
    }
    EXPECT_EQ(call(client_options()), "ok");
  }
  EXPECT_EQ(security->counters().handshakes, failures);
}

// Connections continue and begin while a function blocks; the handshake ends in time, and the function is stopped.
TEST_F(TlsSigning, MayBlock) {
  options.handshake_timeout = std::chrono::seconds(2);  // The signature must be asked for within this time.
  tls_options.policy = TlsPolicy::allowed;
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  start_with([&](const TlsSigningRequest& request) -> Result<std::vector<std::byte>> {
    ++begun;
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, request.stop, patience, [] { return false; }) && !request.stop.stop_requested()) {
      return fail(ErrorCode::internal, "the connection has not ended");
    }
    ++ended;
    return fail(ErrorCode::cancelled, "nobody waits");
  });
  RawTls peer(
      RawSocket::connected_to(server->address()),
      std::make_unique<TlsSession>(load({.ca_file = authority.ca_file(), .peer_certificate_bytes_max = 32 * 1024}),
                                   "localhost", "hawser", nullptr));
  ASSERT_EQ(peer.session().handshake(), TlsSession::Progress::more);
  peer.flush();
  EXPECT_TRUE(soon([&] { return begun == 1; }));
  EXPECT_TRUE(soon([&] { return call_with("in plain text", {}) == "ok"; }));
  // On a busy machine, a call in plain text may have been too late, too.
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed >= 1; })) << logged();
  EXPECT_TRUE(soon([&] { return ended == 1; }));
}

TEST_F(TlsSigning, IsOneOfSeveralCertificatesAndIsReloaded) {
  tls_options.reload_interval = std::chrono::seconds(0);
  const TlsCertificate in_file = authority.issue("file", {.subject = "file", .names = "DNS:file.example"});
  const TlsCertificate first = issue_signed("first", {.names = "DNS:first.example"});
  const auto of_first = signer;
  const TlsCertificate second = issue_signed("second", {.names = "DNS:second.example", .rsa_bits = 2048});
  const auto of_second = signer;
  tls_options.certificates = {in_file, first, second};
  start();
  EXPECT_EQ(of_first->calls, 1);
  EXPECT_EQ(of_second->calls, 1);
  const auto as = [&](const std::string& name) {
    TlsClientOptions with = client_options();
    with.server_name = name;
    return call(with);
  };
  EXPECT_EQ(as("file.example"), "ok");
  EXPECT_EQ(as("second.example"), "ok");
  EXPECT_EQ(as("first.example"), "ok");
  EXPECT_EQ(of_first->calls, 2);
  EXPECT_EQ(of_second->calls, 2);
  // A renewed certificate with another key is not used, because the function still has the old key.
  authority.issue("first", {.names = "DNS:renewed.example"});
  EXPECT_EQ(as("first.example"), "ok");
  EXPECT_EQ(security->counters().reloads_failed, 1U);
  EXPECT_TRUE(logs("the old ones stay: the certificate in ")) << logged();
  EXPECT_TRUE(logs("sign with the private key of this certificate")) << logged();
}

// A function that does not return while it signs for the trial of a reload.
class TlsSigningTrial : public TlsSigning {
 protected:
  // Starts a server with a key in a file and this function, and begins a reload, which blocks.
  void start_blocked_reload() {
    tls_options.reload_interval = std::chrono::seconds(0);
    const TlsCertificate in_file = authority.issue("file", {.names = "DNS:file.example"});
    TlsCertificate certificate = issue_signed("signed");
    certificate.sign = [this, used = signer](const TlsSigningRequest& request) -> Result<std::vector<std::byte>> {
      if (blocks) {
        ++blocked;
        while (blocks && !request.stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return (*used)(request);
    };
    tls_options.certificates = {in_file, certificate};
    start();
    ASSERT_EQ(as("file.example"), "ok");
    blocks = true;
    authority.issue("file", {.names = "DNS:file.example"});
    reload_runs = std::async(std::launch::async, [this] { return as("file.example"); });
    ASSERT_TRUE(soon([&] { return blocked == 1; }));
  }
  std::string as(const std::string& name) {
    TlsClientOptions with = client_options();
    with.server_name = name;
    return call(with);
  }
  std::atomic<bool> blocks{false};
  std::atomic<int> blocked{0};
  std::future<std::string> reload_runs;
};

TEST_F(TlsSigningTrial, DoesNotDelayOtherHandshakes) {
  start_blocked_reload();
  EXPECT_EQ(as("file.example"), "ok");
  EXPECT_TRUE(blocks);
  EXPECT_EQ(security->counters().reloads, 0U);
  blocks = false;
  EXPECT_EQ(reload_runs.get(), "ok");
  EXPECT_EQ(security->counters().reloads, 1U);
}

TEST_F(TlsSigningTrial, StopsWithTheServer) {
  options.handshake_timeout = std::chrono::seconds(3);  // The first handshake must not take longer.
  start_blocked_reload();
  EXPECT_TRUE(soon([&] { return server->counters().handshakes_failed == 1; }));
  server.reset();
  options.security = {};
  security.reset();  // Waits for the function.
  EXPECT_TRUE(blocks);
  EXPECT_NE(reload_runs.get(), "ok");
}

TEST_F(TlsSigning, ProvesAClient) {
  tls_options.client_ca_file = authority.ca_file();
  tls_options.certificates = {authority.issue("server")};
  options.security = TlsServer(tls_options);
  server = std::make_unique<Server>(options);
  server->register_handler<name_of_caller>();
  ASSERT_TRUE(server->start());
  TlsClientOptions with = client_options();
  with.certificate = issue_signed("client", {.subject = "storage-9"});
  std::string name;
  sync_wait([](std::string to, TlsClientOptions given, std::string& out) -> Task<void> {
    ClientOptions client_options;
    client_options.security = TlsClient(given);
    Client client(client_options);
    auto connected = co_await client.connect(to);
    REQUIRE_OK(connected);
    auto reply = co_await client.call<name_of_caller>();
    REQUIRE_OK(reply);
    out = *reply;
  }(server->address(), with, name));
  EXPECT_EQ(name, "CN=storage-9");
}

}  // namespace
}  // namespace hawser
