#include "hawser/http.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hawser/grpc.h"
#include "tests/http2_client.h"
#include "tests/http_server_fixture.h"
#include "tests/out_of_memory/block_limit.h"

// Responses for which memory runs out.
namespace hawser::http_memory {

using namespace http_test;
using out_of_memory::block_bytes_max;

// Connections receive into smaller blocks.
constexpr std::size_t little = 512 * 1024;

Task<HttpResponse> scarce(HttpRequest&) {
  HttpResponse response;
  response.body.assign(1 << 20, 'x');
  block_bytes_max = little;
  co_return response;
}
// The encoding of the result has no piece that could be sent without a copy.
std::vector<std::string> many_texts(int count) {
  std::vector<std::string> texts(static_cast<std::size_t>(count), std::string(4000, 'x'));
  block_bytes_max = little;
  return texts;
}

class HttpMemory : public ServerFixture {
 protected:
  void start() {
    make_server();
    server->register_handler<many_texts>();
    server->enable(grpc());
    server->enable(add_routes(http().route("GET", "/scarce", scarce)));
    start_server();
  }
  ~HttpMemory() override { block_bytes_max = SIZE_MAX; }
};

TEST_F(HttpMemory, AResponseOverHttp1HasOneHead) {
  start();
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes("GET /scarce HTTP/1.1\r\nHost: a\r\n\r\n"));
  const std::string answer = socket.receive_all();
  const std::size_t first = answer.find("HTTP/1.1 ");
  EXPECT_TRUE(first == std::string::npos || answer.find("HTTP/1.1 ", first + 1) == std::string::npos) << answer;
  block_bytes_max = SIZE_MAX;
  EXPECT_TRUE(soon([&] { return server->counters().connections_open == 1; }));
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

TEST_F(HttpMemory, AResponseOverHttp2IsAnError) {
  start();
  Http2Client client(server->address());
  EXPECT_EQ(client.ask("GET", "/scarce").status, 500);
  EXPECT_EQ(client.post("/hawser::http_memory::many_texts", "1000").status, 500);
  block_bytes_max = SIZE_MAX;
  EXPECT_EQ(client.post("/hawser::http_memory::many_texts", "2").status, 200);
  block_bytes_max = SIZE_MAX;
  EXPECT_EQ(client.ask("GET", "/large").body.size(), std::size_t{1} << 20);
  EXPECT_TRUE(soon([&] { return server->counters().calls_in_flight == 0; }));
}

}  // namespace hawser::http_memory
