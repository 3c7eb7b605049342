#include "hawser/health.h"

#include <atomic>
#include <string>

#include "tests/http_server_fixture.h"

// GET /health without the pages.
namespace hawser::http_test {
namespace {

class HttpHealth : public ServerFixture {
 protected:
  // The status and the body.
  std::string ask(const std::string& target) {
    RawSocket socket = RawSocket::connected_to(server->address());
    socket.send(as_bytes("GET " + target + " HTTP/1.0\r\n\r\n"));
    const std::string response = socket.receive_all();
    const std::size_t end = response.find("\r\n\r\n");
    return end == std::string::npos ? response : response.substr(9, 4) + response.substr(end + 4);
  }
};

TEST_F(HttpHealth, IsThatOfTheServer) {
  make_server();
  server->enable(add_routes(http()));
  start_server();
  const ServerHealth health(*server);
  health.set("shop", false);
  EXPECT_EQ(ask("/health"), "200 OK\n");
  EXPECT_EQ(ask("/health?x=1&service=s%68op"), "503 not serving\n");
  EXPECT_EQ(ask("/health?service=nothing"), "404 unknown service\n");
  health.set("shop", true);
  EXPECT_EQ(ask("/health?service=shop"), "200 OK\n");
  std::atomic<bool> good{true};
  health.add({.name = "disk", .check = [&good]() -> Result<void> {
                if (good) return {};
                return fail(ErrorCode::unavailable, "full");
              }});
  EXPECT_EQ(ask("/health"), "200 OK\n");
  good = false;
  EXPECT_EQ(ask("/health"), "503 not serving\n");
  EXPECT_EQ(ask("/health?service=shop"), "503 not serving\n");
  native->stop();
  native.reset();
  server->stop();  // A reporter that refers to this frame.
}

}  // namespace
}  // namespace hawser::http_test
