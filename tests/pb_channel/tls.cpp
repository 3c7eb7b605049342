// Channels over TLS share connections by the content of their identity.
#include "hawser/tls.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
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
  tls::Authority authority;
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

}  // namespace
}  // namespace hawser::pb
