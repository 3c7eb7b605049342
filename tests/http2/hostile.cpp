#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "hawser/grpc.h"
#include "hawser/http.h"
#include "protocol/grpc/test/machine_pair.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"

// Clients of HTTP/2 that use up what they can, and those that do not answer.
namespace hawser::http2_hostile {

using namespace http_test;
namespace h2 = protocol::grpc::testing;

class Http2Hostile : public ServerFixture {
 protected:
  void start(GrpcOptions grpc_options = {}) {
    make_server();
    server->enable(grpc(grpc_options));
    server->enable(add_routes(http()));
    start_server();
  }
};

std::string fields(std::string_view type, std::string_view path = "/test.Bytes/Repeat") {
  return h2::hpack(
      {{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "test"}, {"content-type", type}});
}
// A field of 4000 bytes, which becomes entry 62 of the table, to which later blocks refer by a byte.
std::string long_field() {
  return std::string("\x40\x03x-a", 5) + std::string("\x7f\xa1\x1e", 3) + std::string(4000, 'v');
}

// Each stream costs its client four bytes and the server 16 KB and more. Streams are refused, and perhaps the
// connection ends.
TEST_F(Http2Hostile, HeaderListsOfManyStreamsAreBounded) {
  options.receive_bytes_max = 4 << 20;
  options.receive_share_bytes_max = 1 << 20;
  options.receive_peer_bytes_max = 2 << 20;
  start({.message_bytes_max = 1 << 20});

  for (const std::string_view type : {std::string_view("application/grpc"), std::string_view("application/proto")}) {
    RawSocket socket = RawSocket::connected_to(server->address());
    const std::uint64_t refusals = server->counters().memory_refusals;
    std::string all = h2::hello() + h2::frame(1, 4, 1, fields(type) + long_field());
    for (std::uint32_t i = 1; i < 1000; ++i) all += h2::frame(1, 4, 2 * i + 1, fields(type) + "\xbe\xbe\xbe");
    socket.send(as_bytes(all));
    EXPECT_TRUE(soon([&] { return server->counters().memory_refusals > refusals; })) << type;
    // One connection at a time may exceed the limits by its receive block, which has twice the size of what the block
    // before it held (64 KiB at most): rpc/port/memory_queue.h, ByteSession::room_bytes().
    EXPECT_LE(server->counters().receive_bytes, (std::uint64_t{2} << 20) + (128 << 10)) << type;
    Http2Client good(server->address());
    EXPECT_EQ(good.ask("GET", "/hello").status, 200) << type;
    good.socket().close();
    socket.close();
    EXPECT_TRUE(only_native_left()) << type;
  }
  EXPECT_TRUE(soon([&] { return server->counters().receive_bytes < 100'000; }));
}

// A path or a method costs a byte, too, and is not repeated in the answer.
TEST_F(Http2Hostile, AnswersDoNotRepeatLongFields) {
  start();
  Http2Client client(server->address());
  const Http2Client::Response refused =
      client.ask("POST", "/" + std::string(4000, '%'), {{"content-type", "application/grpc"}});
  EXPECT_TRUE(refused.has("grpc-status", "12"));
  EXPECT_LT(refused.fields.at("grpc-message").size(), 1000U);
  const Http2Client::Response method = client.ask(std::string(4000, 'M'), "/hello");
  EXPECT_EQ(method.status, 405);
  EXPECT_LT(method.body.size(), 1000U);
}

// A client that does not acknowledge the first step of GOAWAY may not go on for ever.
TEST_F(Http2Hostile, AClientThatDoesNotAnswerGoawayIsNotServedForEver) {
  start({.idle_frames_max = 100'000, .connection_age_max = 100ms});
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes(h2::hello()));
  const std::string path =
      h2::hpack({{":method", "GET"}, {":scheme", "http"}, {":path", "/health"}, {":authority", "test"}});
  bool open = true;
  const auto end = std::chrono::steady_clock::now() + patience;
  for (std::uint32_t id = 1; open && std::chrono::steady_clock::now() < end; id += 2) {
    open = socket.send(as_bytes(h2::frame(1, 5, id, path)));
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_FALSE(open);
}

}  // namespace hawser::http2_hostile
