// Changes at the wrong moment, and functions of the application that fail.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hawser/change_option.h"
#include "hawser/hawser.h"
#include "hawser/pages.h"
#include "tests/change_option/fixture.h"
#include "tests/raw_peer.h"
#include "transport/shm/handshake.h"
#include "transport/shm/peer.h"

namespace hawser::change_option_attacks_test {

using namespace testing_tools;
using testing::HasSubstr;

std::string returns(std::string text) { return text; }
Task<void> never_reads(Context& context, Reader<std::string> from) {
  static_cast<void>(co_await context.loop().sleep(1h, context.token()));
  static_cast<void>(from);
}

template <auto function>
Octets request(std::uint32_t call, std::string_view body) {
  using Facts = detail::MethodFacts<function>;
  return message({.kind = wire::FrameKind::request, .call = call, .method = Facts::id, .signature = Facts::signature},
                 body);
}

class ChangeOptionAttack : public change_option_test::ChangeOption {
 protected:
  void start(const std::vector<OwnOption>& given = {}) {
    ServerOptions options;
    options.loop.log = no_log();
    server = std::make_unique<Server>(options);
    server->register_handler<returns, never_reads>();
    for (const OwnOption& one : given) add_option(*server, one);
    enable_pages(*server, {});
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
};

// The client has the server's first hello, and the connection begins later, with the values of that hello.
TEST_F(ChangeOptionAttack, AChangeWithinAHandshakeDoesNotContradictItsHello) {
  using namespace transport::shm;
  start();
  RawSocket peer = RawSocket::connected_to(server->address());
  wire::Hello hello = usual_hello();
  hello.offers.push_back({"shm", encode(ShmOffer{*HostIdentity::here(), 256 * 1024, 1 << 20, 8 * 1024})});
  peer.send(wire::encode_hello(hello));
  const Result<wire::Hello> selected = peer.receive_hello();
  ASSERT_TRUE(selected && selected->selection) << error_of(selected);
  EXPECT_EQ(selected->stream_window_bytes, 256U * 1024);
  change("stream_window_bytes", "1");
  wire::Hello unable = usual_hello();
  unable.unanswered = "not here";
  peer.send(wire::encode_hello(unable));
  const Result<wire::Hello> last = peer.receive_hello();
  ASSERT_TRUE(last) << error_of(last);
  EXPECT_EQ(last->stream_window_bytes, 256U * 1024);
  const std::uint32_t id = wire::CallId(1, 1).number();
  peer.send(request<never_reads>(id, {}));
  for (int i = 0; i < 3; ++i) {  // Far less than the window of the hello.
    peer.send(message({.kind = wire::FrameKind::stream_data, .call = id}, text_body("item")));
  }
  peer.send(request<returns>(wire::CallId(2, 1).number(), text_body("there")));
  EXPECT_TRUE(peer.receive_frame(wire::FrameKind::response));
}

TEST_F(ChangeOptionAttack, FunctionsOfTheApplicationThatThrow) {
  start({{.name = "shop.odd",
          .value = "5",
          .change = [](std::string_view) -> Result<void> { throw 7; },
          .read = []() -> std::string { throw std::runtime_error("the table is locked"); }},
         {.name = "shop.even", .value = "6", .change = [](std::string_view) { return Result<void>(); }},
         {.name = "shop.unreadable",
          .value = "7",
          .change = [](std::string_view) { return Result<void>(); },
          .read = []() -> std::string { throw 7; }}});
  EXPECT_TRUE(is_error(change_option(*server, "shop.odd", "1"), ErrorCode::invalid_argument, "shop.odd"));
  EXPECT_TRUE(is_error(change_option(*server, "shop.unreadable", "1"), ErrorCode::invalid_argument, "exception"));
  // Only these options are not readable. The page shows the others.
  EXPECT_THAT(value_of("shop.odd"), HasSubstr("the table is locked"));
  EXPECT_EQ(value_of("shop.even"), "6");
  RawSocket socket = RawSocket::connected_to(server->address());
  socket.send(as_bytes("GET /options HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(socket.receive_all(), HasSubstr("shop.even"));
  EXPECT_TRUE(change_option(*server, "shop.even", "8"));
  EXPECT_EQ(value_of("shop.even"), "8");
}

}  // namespace hawser::change_option_attacks_test
