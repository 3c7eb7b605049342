#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "hawser/authorization.h"
#include "hawser/jwt.h"
#include "hawser/pages.h"
#include "hawser/recent_log.h"
#include "hawser/tracing.h"
#include "tests/tls/fixture.h"

// Secrets of a server are on none of its pages, in no metric, in no line of its log, and in no error that a client
// gets.
namespace hawser {
namespace {

using namespace testing_tools;

constexpr std::string_view bearer = "bearer-0123456789-of-alice";
constexpr std::string_view wrong_bearer = "bearer-9876543210-of-nobody";
constexpr std::string_view wrong_jwt = "eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJzZWNyZXQifQ.c2VjcmV0LXNpZ25hdHVyZQ";
// The bytes 0 to 31.
constexpr std::string_view jwk = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const std::string psk = "5ec4e7005ec4e7005ec4e7005ec4e7005ec4e7005ec4e7005ec4e7005ec4e700";

std::string content_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class TlsSecrets : public TlsFixture {
 protected:
  std::string written(const std::string& name, std::string_view text) const {
    const std::string path = (folder.path() / name).string();
    std::ofstream(path) << text;
    return path;
  }
  // Everything that a client of this machine gets for a path, in plain text.
  std::string page(const std::string& path) const {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"));
    std::string all;
    while (const auto one = socket.receive(1)) all += static_cast<char>(one->front());
    return all;
  }
  static std::string call_with_token(const std::string& to, const TlsClientOptions& tls, std::string_view token) {
    std::string outcome = "ok";
    sync_wait([](std::string address, TlsClientOptions with, std::string sent, std::string& out) -> Task<void> {
      ClientOptions options{.connect_timeout = patience, .call_timeout = patience};
      options.security = TlsClient(std::move(with));
      Client client(options);
      auto connected = co_await client.connect(address);
      REQUIRE_OK(connected);
      CallOptions call;
      call.metadata = {{"authorization", "Bearer " + sent}};
      auto reply = co_await client.call<echo>(call, "hi");
      if (!reply) out = reply.error().text;
      client.close();
    }(to, tls, std::string(token), outcome));
    return outcome;
  }
};

TEST_F(TlsSecrets, AreShownNowhere) {
  const RecentLog recent(options.loop.log, LogLevel::debug);
  options.loop.log = recent.sink();
  const Tracer tracer({.ratio = 1});
  tls_options.certificates = {authority.issue("server")};
  tls_options.shared_keys = {{"storage", written("storage.key", psk)}};
  tls_options.policy = TlsPolicy::allowed;
  security = std::make_unique<TlsServer>(tls_options);
  options.security = *security;
  server = std::make_unique<Server>(options);
  server->register_handler<echo>();
  server->use(tracer.server_spans());
  const auto tokens = JwtVerifier::load(
      {.keys_file = written("jwks.json", R"({"keys":[{"kty":"oct","k":")" + std::string(jwk) + "\"}]}"),
       .issuer = "issuer",
       .audience = "a"});
  ASSERT_TRUE(tokens) << error_of(tokens);
  Identity alice;
  alice.subject = "alice";
  const BearerTokens fixed = BearerTokens().add(bearer, alice);
  // Tokens with dots are signed ones.
  server->use([fixed, signed_ones = *tokens](IncomingCall& call, Next next) -> Task<Result<void>> {
    auto verified =
        bearer_token(call).contains('.') ? signed_ones(call, std::move(next)) : fixed(call, std::move(next));
    co_return co_await std::move(verified);
  });
  server->use(Authorization({.log_allowed = true}).allow("*", anyone()));
  enable_pages(*server, {.log = recent, .tracer = tracer});
  const Result<void> started = server->start();
  ASSERT_TRUE(started) << error_of(started);

  TlsClientOptions by_key;
  by_key.shared_key = {"storage", tls_options.shared_keys.front().file};
  std::string errors;
  for (const TlsClientOptions& tls : {client_options(), by_key}) {
    EXPECT_EQ(call_with_token(server->address(), tls, bearer), "ok");
    for (const std::string_view wrong : {wrong_bearer, wrong_jwt}) {
      const std::string error = call_with_token(server->address(), tls, wrong);
      EXPECT_NE(error, "ok");
      errors += error + "\n";
    }
  }
  TlsClientOptions other_key;
  other_key.shared_key = {"storage", written("other.key", std::string(64, 'd'))};
  errors += call(other_key) + "\n";

  const std::string key = content_of(tls_options.certificates.front().key_file);
  const std::string key_body = key.substr(key.find('\n') + 1, 64);
  std::string key_bytes;
  ASSERT_TRUE(decode_base64(key_body, key_bytes));
  std::string psk_bytes;
  for (std::size_t at = 0; at < psk.size(); at += 2) {
    psk_bytes += static_cast<char>(std::stoi(psk.substr(at, 2), nullptr, 16));
  }
  const std::vector<std::pair<std::string, std::string>> secrets = {
      {"the token", std::string(bearer)},
      {"a wrong token", std::string(wrong_bearer)},
      {"a wrong signed token", std::string(wrong_jwt)},
      {"the claims of a wrong token", "eyJpc3MiOiJzZWNyZXQifQ"},
      {"the key of signed tokens", std::string(jwk)},
      {"the shared key", psk},
      {"the bytes of the shared key", psk_bytes},
      {"the private key", key_body},
      {"the bytes of the private key", key_bytes.substr(0, 32)}};
  std::vector<std::pair<std::string, std::string>> shown = {{"an error", errors}, {"the log", logged()}};
  const std::string first = page("/");
  EXPECT_HAS(first, "200 OK");
  for (const std::string path : {"/", "/health", "/status", "/connections", "/calls", "/traces", "/loops", "/memory",
                                 "/options", "/log", "/version", "/metrics"}) {
    shown.emplace_back(path, page(path));
    EXPECT_HAS(shown.back().second, "200 OK");
  }
  EXPECT_HAS(logged(), "allowed ") << "the search must find what is there";
  EXPECT_HAS(shown[shown.size() - 3].second, "token alice");
  for (const auto& [where, text] : shown) {
    for (const auto& [what, secret] : secrets) {
      ASSERT_FALSE(secret.empty());
      EXPECT_EQ(text.find(secret), std::string::npos) << what << " is shown by " << where;
    }
  }
}

}  // namespace
}  // namespace hawser
