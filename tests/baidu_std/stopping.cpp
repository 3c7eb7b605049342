#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>

#include "hawser/scope.h"
#include "tests/baidu_std/fixture.h"
#include "tests/lifecycle/virtual_time.h"

// The end of connections whose clients receive no announcement of it, in virtual time.
namespace hawser::protocol::baidu_std {
namespace {

using namespace std::chrono_literals;

class BaiduStdStopInVirtualTime : public lifecycle::VirtualTime {};

TEST_F(BaiduStdStopInVirtualTime, AClientThatGoesOnToSendIsRefusedForASecond) {
  const std::unique_ptr<Server> server = make_server();
  serve_method<echo_message>(*server, "test.Raw/Echo");
  server->enable(hawser::baidu_std());
  ASSERT_TRUE(server->start());
  run([&]() -> Task<void> {
    const auto client = co_await lifecycle::connect_raw(loop, *network, server->address());
    REQUIRE(client);
    client->send(bytes_of({.id = 1}));
    co_await loop.sleep(100ms);
    const std::size_t first_bytes = client->got().size();
    EXPECT_GT(first_bytes, 0U);
    Scope stopping;
    stopping.spawn(server->shut_down(1h));
    const Time begin = loop.now();
    std::size_t sent = 0;
    while (!client->ended() && loop.now() - begin < 1min) {
      client->send(bytes_of({.id = 2}));
      ++sent;
      co_await loop.sleep(10ms);
    }
    EXPECT_TRUE(client->ended());
    EXPECT_GT(loop.now() - begin, 900ms);
    EXPECT_LT(loop.now() - begin, 3s);
    std::size_t refused = 0;
    for (Bytes rest = Bytes(client->got()).subspan(first_bytes); !rest.empty(); ++refused) {
      const std::size_t bytes = FrameHeader::bytes + (**parse_header(rest, {})).body_bytes;
      const Answer answer = parse_answer(Octets(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(bytes)));
      EXPECT_EQ(answer.id, 2);
      EXPECT_EQ(answer.error_code, 2003);
      rest = rest.subspan(bytes);
    }
    EXPECT_GT(refused, 80U);
    EXPECT_LE(refused, sent);
    co_await stopping.join();
  });
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
