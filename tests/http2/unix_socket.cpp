#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/grpc.h"
#include "hawser/http.h"
#include "protocol/grpc/test/machine_pair.h"
#include "tests/http_server_fixture.h"

// Clients at a Unix socket send its path as :authority, or nothing: grpc-java, the h2 of Rust, Bazel.
namespace hawser::http2_unix_socket {

using namespace http_test;
namespace h2 = protocol::grpc::testing;
using protocol::grpc::Machine;

class Http2UnixSocket : public ServerFixture {
 protected:
  void start() {
    options.listen = "unix:" + folder.path().string() + "/socket";
    make_server();
    server->enable(grpc());
    server->enable(add_routes(http()));
    start_server();
    sockaddr_un to{.sun_family = AF_UNIX};
    std::strcpy(to.sun_path, (folder.path().string() + "/socket").c_str());
    socket = RawSocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  // The response to a request of gRPC or of HTTP: "grpc 0 reply", "http 200", or "reset 1".
  std::string ask(bool is_grpc, const std::vector<Machine::Field>& hosts) {
    std::vector<Machine::Field> fields = {{":method", is_grpc ? "POST" : "GET"},
                                          {":scheme", "http"},
                                          {":path", is_grpc ? "/test.Bytes/Repeat" : "/hello"}};
    fields.insert(fields.end(), hosts.begin(), hosts.end());
    if (is_grpc) fields.insert(fields.end(), {{"te", "trailers"}, {"content-type", "application/grpc"}});
    protocol::grpc::Stream& stream = *client.machine.begin_request(fields);
    if (is_grpc) client.machine.send_message(stream, h2::framed("text"), {}, nullptr, 1);
    client.machine.send_end(stream);
    socket.send(as_bytes(h2::take_output(client.machine, client.output)));
    const std::int32_t id = stream.id;
    while (!client.closed.contains(id)) {
      const auto one = socket.receive(1);
      if (!one || !client.feed(as_text(*one))) return "the connection ended";
    }
    if (client.closed[id] != 0) return "reset " + std::to_string(client.closed[id]);
    if (!is_grpc) return "http " + std::to_string(client.status[id].http_status);
    return "grpc " + std::to_string(client.status[id].grpc_status);
  }

  TemporaryFolder folder;
  RawSocket socket;
  h2::ClientLog client;
};

TEST_F(Http2UnixSocket, GrpcIsServedWhateverTheAuthority) {
  start();
  const std::string path = folder.path().string() + "/socket";
  for (const std::string& authority : {path, std::string("%2Frun%2Fa.sock"), std::string(), std::string("a b"),
                                       std::string("unix:/run/a.sock"), std::string("localhost")}) {
    EXPECT_EQ(ask(true, {{":authority", authority}}), "grpc 0") << authority;
  }
  EXPECT_EQ(ask(true, {}), "grpc 0");
  EXPECT_EQ(ask(true, {{"host", path}}), "grpc 0");
  // A value with which a proxy could be deceived is not.
  EXPECT_EQ(ask(true, {{":authority", "a\r\nb"}}), "reset 1");
  EXPECT_EQ(ask(true, {{":authority", "a"}, {":authority", "a"}}), "reset 1");
  EXPECT_EQ(ask(true, {{":authority", path}}), "grpc 0");
}

// Routes and pages decide by the host.
TEST_F(Http2UnixSocket, HttpNeedsAHost) {
  start();
  EXPECT_EQ(ask(false, {{":authority", "localhost"}}), "http 200");
  EXPECT_EQ(ask(false, {{"host", "localhost"}}), "http 200");
  EXPECT_EQ(ask(false, {{":authority", "%2Frun%2Fa.sock"}}), "http 200");
  EXPECT_EQ(ask(false, {{":authority", "/run/a.sock"}}), "http 400");
  EXPECT_EQ(ask(false, {{"host", "a,b"}}), "http 400");
  EXPECT_EQ(ask(false, {}), "http 400");
}

}  // namespace hawser::http2_unix_socket
