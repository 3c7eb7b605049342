#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hawser/grpc.h"
#include "hawser/http.h"
#include "protocol/grpc/test/machine_pair.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"

// Responses that clients do not take: what they hold, for how long, and that clients which read are served.
// docs/security.md has the table.
namespace hawser::http2_unread {

using namespace http_test;
namespace h2 = protocol::grpc::testing;

constexpr std::size_t mib = std::size_t{1} << 20;

std::string bulk(std::uint32_t bytes) { return std::string(bytes, 'b'); }

class Unread : public ServerFixture {
 protected:
  void start(GrpcOptions grpc_options = {}) {
    make_server();
    server->register_handler<bulk>();
    server->enable(grpc(grpc_options));
    server->enable(add_routes(http()));
    start_server();
  }
};

// A client that never takes a byte of its responses: what it sends on each connection.
struct Hoarder {
  std::string name;
  std::function<RawSocket(const std::string& address, std::size_t& sent)> connect;
};

// Connects from another host than the other clients of the test: memory is bounded for each host.
RawSocket from_other_host(const std::string& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  RawSocket socket(fd);
  sockaddr_in end{};
  end.sin_family = AF_INET;
  end.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&end), sizeof end), 0);
  end.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  end.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&end), sizeof end), 0);
  return socket;
}

void send_all(RawSocket& socket, Bytes bytes, std::size_t& sent) {
  socket.send(bytes, 100ms);
  sent += bytes.size();
}

RawSocket hoard_native(const std::string& address, std::size_t& sent) {
  RawSocket socket = from_other_host(address);
  socket.send(wire::encode_hello(usual_hello()));
  EXPECT_TRUE(socket.receive_hello());
  using Facts = detail::MethodFacts<bulk>;
  Octets requests;
  for (std::uint32_t i = 0; i < 64; ++i) {
    std::string body(4, '\0');
    store_le(reinterpret_cast<std::byte*>(body.data()), static_cast<std::uint32_t>(mib / 2));
    requests = requests + message({.kind = wire::FrameKind::request,
                                   .call = 0x10000U | i,
                                   .method = Facts::id,
                                   .signature = Facts::signature},
                                  body);
  }
  send_all(socket, requests, sent);
  return socket;
}
RawSocket hoard_http1(const std::string& address, std::size_t& sent) {
  RawSocket socket = from_other_host(address);
  std::string requests;
  for (int i = 0; i < 64; ++i) requests += "GET /large HTTP/1.1\r\nHost: a\r\n\r\n";
  send_all(socket, as_bytes(requests), sent);
  return socket;
}
// SETTINGS_INITIAL_WINDOW_SIZE 0: the connection itself is read.
RawSocket hoard_http2(const std::string& address, std::size_t& sent) {
  RawSocket socket = from_other_host(address);
  std::string requests = std::string(h2::preface) + h2::frame(4, 0, 0, std::string("\0\4\0\0\0\0", 6));
  const std::string get =
      h2::hpack({{":method", "GET"}, {":scheme", "http"}, {":path", "/large"}, {":authority", "t"}});
  for (std::uint32_t i = 0; i < 64; ++i) requests += h2::frame(1, 5, 2 * i + 1, get);
  send_all(socket, as_bytes(requests), sent);
  return socket;
}

class UnreadBy : public Unread, public ::testing::WithParamInterface<Hoarder> {};

// The responses of all connections of one host stay below its part of the budget, and one response, or one block, of
// each connection. A client that reads is served meanwhile. When half of the budget is used, those who take nothing
// lose their connections within two windows.
TEST_P(UnreadBy, IsChargedBoundedAndEnds) {
  options.send_backlog_bytes_max = 4 * mib;
  options.receive_bytes_max = 32 * mib;
  options.receive_share_bytes_max = 8 * mib;
  options.receive_peer_bytes_max = 24 * mib;
  options.receive_window = 1s;
  start();
  constexpr std::size_t hoarders = 24;
  std::vector<RawSocket> sockets;
  std::size_t sent = 0;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < hoarders; ++i) {
    sockets.push_back(GetParam().connect(server->address(), sent));
    EXPECT_TRUE(native->sees_calls(2));
    most = std::max(most, server->counters().receive_bytes);
  }
  EXPECT_TRUE(soon([&] {
    most = std::max(most, server->counters().receive_bytes);
    return server->counters().slow_peers > 0;
  })) << "nobody was ended";
  EXPECT_GE(most, 16 * mib) << "what waits to be sent is charged";
  EXPECT_LE(most, (24 + 3 * hoarders) * mib);
  std::printf("%s: %zu connections sent %zu bytes and held up to %llu bytes\n", GetParam().name.c_str(), hoarders, sent,
              static_cast<unsigned long long>(most));
  // Others go on: those that are left use less than half of the budget.
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes <= 16 * mib; }));
  Http2Client good(server->address());
  EXPECT_EQ(good.ask("GET", "/large").body.size(), mib);
  good.socket().close();
  sockets.clear();
  EXPECT_TRUE(only_native_left());
}

INSTANTIATE_TEST_SUITE_P(Protocols, UnreadBy,
                         ::testing::Values(Hoarder{"Native", hoard_native}, Hoarder{"Http1", hoard_http1},
                                           Hoarder{"Http2", hoard_http2}),
                         [](const auto& given) { return given.param.name; });

// Requests that arrive while responses wait for the client wait as well. A client that reads gets all of them.
TEST_F(Unread, AClientAtFullSpeedIsNeverRefused) {
  options.send_backlog_bytes_max = mib;
  start();
  Http2Client client(server->address());
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(client.begin("GET", "/large"));
  EXPECT_TRUE(client.until([&] {
    for (const std::int32_t id : ids) {
      if (!client.responses[id].closed) return false;
    }
    return true;
  }));
  for (const std::int32_t id : ids) {
    EXPECT_EQ(client.responses[id].status, 200) << client.responses[id].body;
    EXPECT_EQ(client.responses[id].body.size(), mib);
  }
  EXPECT_EQ(server->counters().calls_refused, 0U);
  client.socket().close();
  EXPECT_TRUE(only_native_left());
}

// Requests that wait may be cancelled, and others of the connection run in their order.
TEST_F(Unread, RequestsThatWaitMayBeCancelled) {
  options.send_backlog_bytes_max = mib;
  start();
  Http2Client client(server->address(), 0);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(client.begin("GET", "/large"));
  for (int i = 0; i < 20; ++i) ids.push_back(client.begin("POST", "/test.Text/Say", {}, {"\"waits\""}));
  EXPECT_TRUE(client.until([&] { return client.responses[ids[1]].status == 200; }));
  for (std::size_t i = 0; i < ids.size(); i += 2) client.reset(ids[i]);
  client.reset(ids[1]);
  // Without the large responses there is room.
  for (std::size_t i = 3; i < ids.size(); i += 2) {
    EXPECT_TRUE(client.until([&] { return client.responses[ids[i]].status == 200; })) << i;
  }
  EXPECT_EQ(server->counters().calls_refused, 0U);
  client.socket().close();
  EXPECT_TRUE(only_native_left());
}

// A client that waits for a later response before it takes the earlier ones gets it.
TEST_F(Unread, AStreamThatNobodyReadsDoesNotStopTheOthers) {
  options.send_backlog_bytes_max = mib / 2;
  start();
  Http2Client client(server->address(), 0);
  const std::int32_t unread = client.begin("GET", "/large");
  EXPECT_TRUE(client.until([&] { return client.responses[unread].status == 200; }));
  EXPECT_EQ(client.ask("HEAD", "/hello").status, 200);
  EXPECT_EQ(client.ask("HEAD", "/hello").status, 200);
  client.socket().close();
  EXPECT_TRUE(only_native_left());
}

// A client, such as a proxy, that takes one response slowly and others not at all gets those of further requests.
TEST_F(Unread, ASlowResponseDoesNotStopTheOthers) {
  options.send_backlog_bytes_max = mib;
  start();
  Http2Client client(server->address(), 0);
  const std::int32_t slow = client.begin("GET", "/large");
  client.begin("GET", "/large");
  EXPECT_TRUE(client.until([&] { return client.responses[slow].status == 200; }));
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 50; ++i) ids.push_back(client.begin("HEAD", "/hello"));
  client.open_window(slow, 100);  // nghttp2 opens it again by as much as it receives.
  EXPECT_TRUE(client.until(
      [&] { return std::ranges::all_of(ids, [&](std::int32_t id) { return client.responses[id].status == 200; }); }));
  EXPECT_FALSE(client.responses[slow].ended);
  client.socket().close();
  EXPECT_TRUE(only_native_left());
}

}  // namespace hawser::http2_unread
