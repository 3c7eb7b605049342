#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
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
using protocol::grpc::GrpcMachine;

class Http2UnixSocket : public ServerFixture {
 protected:
  void start() {
    options.listen = "unix:" + folder.path().string() + "/socket";
    make_server();
    server->add_method(
        {.id = 17,
         .name = "test.Proto/Wait",
         .handler = std::make_unique<detail::FunctionHandler<wait_for_ever, void>>(nullptr, HandlerOptions{}),
         .json = std::make_shared<BytesTranscoder>()});
    server->enable(grpc());
    server->enable(add_routes(http()));
    start_server();
    ASSERT_TRUE(native->sees_calls(1)) << "it cannot connect any more when the folder is gone";
    sockaddr_un to{.sun_family = AF_UNIX};
    std::strcpy(to.sun_path, (folder.path().string() + "/socket").c_str());
    socket = RawSocket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  // Begins a request, whose body is the message of gRPC or the text.
  std::int32_t begin(const std::vector<GrpcMachine::Field>& fields, std::string_view body) {
    protocol::grpc::GrpcStream& stream = *client.machine.begin_request(fields);
    const bool is_grpc = fields.back().second == "application/grpc";
    const std::int32_t id = stream.id;
    client.machine.send_message(stream, is_grpc ? h2::framed(body) : Buffer::copy_of(as_bytes(body)), {}, nullptr, 1);
    client.machine.send_end(stream);
    socket.send(as_bytes(h2::take_output(client.machine, client.output)));
    return id;
  }
  // The response to it: "grpc 0", "http 200", or "reset 1".
  std::string answer(std::int32_t id, bool is_grpc) {
    while (!client.closed.contains(id)) {
      const auto one = socket.receive(1);
      if (!one || !client.feed(as_text(*one))) return "the connection ended";
      const std::string output = h2::take_output(client.machine, client.output);  // Acknowledgements.
      if (!output.empty()) socket.send(as_bytes(output));
    }
    if (client.closed[id] != 0) return "reset " + std::to_string(client.closed[id]);
    const protocol::grpc::HeaderFields& fields = client.status[id];
    if (!is_grpc) return "http " + std::to_string(fields.http_status);
    const std::string text = fields.grpc_message.substr(0, fields.grpc_message.find(','));
    return "grpc " + std::to_string(fields.grpc_status) + (text.empty() ? "" : " " + text);
  }
  std::string ask(bool is_grpc, const std::vector<GrpcMachine::Field>& hosts) {
    std::vector<GrpcMachine::Field> fields = {{":method", is_grpc ? "POST" : "GET"},
                                              {":scheme", "http"},
                                              {":path", is_grpc ? "/test.Bytes/Repeat" : "/hello"}};
    fields.insert(fields.end(), hosts.begin(), hosts.end());
    if (is_grpc) fields.insert(fields.end(), {{"te", "trailers"}, {"content-type", "application/grpc"}});
    return answer(begin(fields, is_grpc ? "text" : ""), is_grpc);
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

// Neither an error of the connection, nor of its other calls.
TEST_F(Http2UnixSocket, APairTooManyFailsOnlyItsCall) {
  start();
  std::vector<GrpcMachine::Field> fields = {{":authority", "test"}};
  std::vector<std::string> names;
  for (int i = 0; i < 64; ++i) names.push_back("x-" + std::to_string(i));
  for (const std::string& name : names) fields.emplace_back(name, "1");
  EXPECT_EQ(ask(true, fields), "grpc 0");
  fields.emplace_back("x-64", "1");
  EXPECT_EQ(ask(true, fields), "grpc 8 the request's metadata exceeds a fixed limit: 64 pairs");
  EXPECT_EQ(ask(true, {{":authority", "test"}}), "grpc 0");
}

// The client has not cancelled the call: it may try another server.
TEST_F(Http2UnixSocket, ACallThatTheServerEndsIsUnavailable) {
  start();
  const std::int32_t call = begin({{":method", "POST"},
                                   {":scheme", "http"},
                                   {":path", "/test.Proto/Wait"},
                                   {"te", "trailers"},
                                   {"content-type", "application/grpc"}},
                                  std::string(4, '\0'));
  const std::int32_t route =
      begin({{":method", "POST"}, {":scheme", "http"}, {":path", "/test.Text/Wait"}, {":authority", "test"}}, "\"\"");
  EXPECT_TRUE(soon([&] { return waiting == 2; }));
  native->stop();
  native.reset();
  std::thread stopping([&] { server->stop(1ms); });
  EXPECT_EQ(answer(call, true).substr(0, 7), "grpc 14");
  EXPECT_EQ(answer(route, false), "http 503");
  socket.close();
  stopping.join();
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
