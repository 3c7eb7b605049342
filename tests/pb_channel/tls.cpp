// Channels over TLS share connections by the content of their identity.
#include "hawser/tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "base/temporary_folder.h"
#include "hawser/authorization.h"
#include "hawser/jwt.h"
#include "hawser/protobuf_channel.h"
#include "security/tls/authority.h"
#include "tests/pb_channel/fixture.h"

namespace hawser::pb {
namespace {

struct PbTls : public ::testing::TestWithParam<const char*> {
  PbTls() : authority(folder.path().string(), "main") {
    TlsServerOptions tls;
    tls.certificates = {authority.issue("server")};
    tls.client_ca_file = authority.ca_file();
    tls.client_certificate_required = false;
    ServerOptions with;
    with.security = TlsServer(tls);
    server = std::make_unique<Server>(with);
    server->enable(baidu_std());
    add_service(*server, &office);
    if (auto started = server->start(); !started) ADD_FAILURE() << started.error().describe();
    options.protocol = GetParam();
    options.timeout_ms = options.connect_timeout_ms =
        static_cast<std::int32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
    identity.ca_file = authority.ca_file();
  }
  ~PbTls() override { server->stop(Duration(0)); }

  // The number of connections that one more channel has made. Each has a TlsClient of its own.
  std::uint64_t added() {
    const std::uint64_t before = server->counters().connections_accepted;
    options.client.security = TlsClient(identity);
    channels.push_back(std::make_unique<Channel>());
    EXPECT_EQ(channels.back()->Init(server->address(), &options), 0) << channels.back()->error_text();
    Controller controller;
    probe::Receipt receipt;
    probe::Parcel request;
    request.set_text("x");
    probe::PostService_Stub(channels.back().get()).Deliver(&controller, &request, &receipt, nullptr);
    EXPECT_FALSE(controller.Failed()) << controller.ErrorText();
    return server->counters().connections_accepted - before;
  }

  TemporaryFolder folder;
  security::tls::Authority authority;
  PostOffice office;
  std::unique_ptr<Server> server;
  ChannelOptions options;
  TlsClientOptions identity;
  std::vector<std::unique_ptr<Channel>> channels;
};

INSTANTIATE_TEST_SUITE_P(Protocols, PbTls, ::testing::Values("baidu_std", "hawser"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(PbTls, EqualIdentitiesShareConnections) {
  const std::vector<void (*)(PbTls&)> changes{
      [](PbTls&) {},
      [](PbTls& to) { to.identity.certificate = to.authority.issue("client"); },
      // The same names of files with a new certificate.
      [](PbTls& to) { to.identity.certificate = to.authority.issue("client"); },
      [](PbTls& to) { to.identity.certificate = to.authority.issue("other"); },
      [](PbTls& to) {
        std::filesystem::copy_file(to.identity.ca_file, to.folder.path() / "copy.pem");
        to.identity.ca_file = (to.folder.path() / "copy.pem").string();
      },
      [](PbTls& to) { to.identity.server_name = "localhost"; },
      [](PbTls& to) { to.identity.protection = TlsProtection::encrypted_stream; },
      [](PbTls& to) { to.identity.tls12 = false; },
      [](PbTls& to) { to.identity.resumption = false; },
      [](PbTls& to) { to.identity.accept_any_server = true; },
      [](PbTls& to) { to.identity.reload_interval = forever; },
      [](PbTls& to) { to.identity.peer_certificate_bytes_max += 1; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    changes[i](*this);
    EXPECT_EQ(added(), 1U) << i;
    EXPECT_EQ(added(), 0U) << i;
  }
  channels.clear();
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 0; }));
}

// ---- Signed tokens as authentication_data ----

std::string url_text(std::string_view bytes) {
  std::string out;
  encode_base64(bytes, out);
  while (out.ends_with('=')) out.pop_back();
  for (char& c : out) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return out;
}
std::string signed_token(const std::string& claims, const std::string& secret) {
  const std::string text = url_text(R"({"alg":"HS256"})") + "." + url_text(claims);
  std::array<unsigned char, 32> code{};
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), code.data(), &size);
  return text + "." + url_text({reinterpret_cast<const char*>(code.data()), size});
}

TEST(PbTokens, ASignedTokenIsACredentialOfBrpc) {
  const TemporaryFolder folder;
  const std::string secret = "0123456789abcdef0123456789ABCDEF";
  const std::string keys = (folder.path() / "jwks.json").string();
  std::ofstream(keys) << R"({"keys":[{"kty":"oct","k":")" << url_text(secret) << "\"}]}";
  const Result<JwtVerifier> tokens = JwtVerifier::load({.keys_file = keys, .issuer = "login", .audience = "post"});
  ASSERT_TRUE(tokens) << error_of(tokens);
  ServerOptions server_options;
  server_options.loop.log = LogSink([](LogLevel, std::string_view, std::string_view) {});
  Server server(server_options);
  PostOffice office;
  BaiduStdOptions with;
  with.authenticate = [verifier = *tokens](BaiduStdLogin login) -> Task<Result<Identity>> {
    co_return verifier.verify(login.credential);
  };
  server.enable(baidu_std(with));
  server.use(Authorization().allow("probe.PostService/Deliver", claim("groups", "backup")));
  add_service(server, &office);
  ASSERT_TRUE(server.start());
  const auto error_code = [&](const std::string& credential) {
    ChannelOptions options;
    options.protocol = "baidu_std";
    options.max_retry = 0;
    options.timeout_ms = options.connect_timeout_ms =
        static_cast<std::int32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
    options.credential = credential;
    Channel channel;
    EXPECT_EQ(channel.Init(server.address(), &options), 0) << channel.error_text();
    Controller controller;
    probe::Receipt receipt;
    probe::Parcel request;
    request.set_text("x");
    probe::PostService_Stub(&channel).Deliver(&controller, &request, &receipt, nullptr);
    EXPECT_EQ(controller.ErrorText().find(credential.substr(0, 40)),
              credential.empty() ? std::size_t{0} : std::string::npos);
    return controller.Failed() ? controller.ErrorCode() : 0;
  };
  const std::string valid = R"({"iss":"login","aud":"post","exp":9999999999,"sub":"a","groups":)";
  EXPECT_EQ(error_code(signed_token(valid + R"(["staff","backup"]})", secret)), 0);
  EXPECT_EQ(error_code(signed_token(valid + R"(["staff"]})", secret)), 13);
  EXPECT_EQ(error_code(signed_token(valid + R"(["backup"]})", secret + "x")), 1004);
  EXPECT_EQ(error_code(signed_token(R"({"iss":"login","aud":"post","exp":1,"groups":"backup"})", secret)), 1004);
  EXPECT_EQ(error_code(""), 1004);
  EXPECT_EQ(error_code("Bearer " + signed_token(valid + R"(["backup"]})", secret)), 1004);
}

}  // namespace
}  // namespace hawser::pb
