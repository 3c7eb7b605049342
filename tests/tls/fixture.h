#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/temporary_folder.h"
#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/tls.h"
#include "security/tls/authority.h"
#include "tests/background_client.h"
#include "tests/output_of.h"
#include "tests/raw_peer.h"

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

namespace hawser::testing_tools {

// A server with TLS that offers echo() and GET /hello, and certificates of one authority.
class TlsFixture : public ::testing::Test {
 protected:
  TlsFixture() : authority(folder.path().string(), "main") {
    options.loop.log = LogSink([this](LogLevel, std::string_view, std::string_view text) {
      const std::lock_guard lock(log_mutex);
      log += std::string(text) + "\n";
    });
    options.handshake_timeout = patience;
    tls_options.reload_interval = forever;
  }

  void start() {
    if (tls_options.certificates.empty()) tls_options.certificates = {authority.issue("server")};
    security = std::make_unique<TlsServer>(tls_options);
    options.security = *security;
    server = std::make_unique<Server>(options);
    server->register_handler<echo>();
    server->enable(http().route("GET", "/hello", hello));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  static Task<HttpResponse> hello(HttpRequest&) {
    HttpResponse response;
    response.body = "hello over http";
    co_return response;
  }
  TlsClientOptions client_options() const {
    TlsClientOptions made;
    made.ca_file = authority.ca_file();
    return made;
  }
  // Connects, calls, and returns the text of the first error; "ok" if there was none.
  std::string call(const TlsClient& tls, ClientOptions with = {}) {
    return call(std::string("hi"), tls, std::move(with));
  }
  std::string call(std::string text, const TlsClient& tls, ClientOptions with = {}) {
    with.security = tls;
    return call_with(std::move(text), std::move(with));
  }
  std::string call(const TlsClientOptions& tls) { return call(TlsClient(tls)); }
  std::string call_with(std::string text, ClientOptions with) {
    std::string outcome = "ok";
    std::string address = server->address();
    sync_wait([](std::string to, std::string sent, ClientOptions given, std::string& out,
                 std::string& transport) -> Task<void> {
      given.call_timeout = patience;
      given.connect_timeout = patience;
      Client client(std::move(given));
      auto connected = co_await client.connect(to);
      if (!connected) {
        out = connected.error().text;
        co_return;
      }
      transport = std::string(client.transport());
      for (int i = 0; i < 3; ++i) {
        auto reply = co_await client.call<echo>(std::string_view(sent));
        if (!reply) out = reply.error().text;
        if (reply && *reply != sent) out = "a wrong reply";
      }
      client.close();
    }(address, std::move(text), std::move(with), outcome, used_transport));
    return outcome;
  }
  std::string logged() {
    const std::lock_guard lock(log_mutex);
    return log;
  }
  std::string port() const { return server->address().substr(server->address().rfind(':') + 1); }

  TemporaryFolder folder;
  security::tls::Authority authority;
  TlsServerOptions tls_options;
  ServerOptions options;
  std::mutex log_mutex;
  std::string log;
  std::unique_ptr<TlsServer> security;
  std::unique_ptr<Server> server;
  std::string used_transport;
};

}  // namespace hawser::testing_tools
