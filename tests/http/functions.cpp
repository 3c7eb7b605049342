#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/hawser.h"
#include "hawser/http.h"
#include "hawser/interceptor.h"
#include "hawser/schema.h"
#include "tests/raw_peer.h"

// Plain functions over HTTP with JSON, and the descriptions of a server's methods.
namespace hawser {

namespace functions_test {

struct Order {
  std::string item = {};
  std::uint32_t count = 0;
  std::optional<std::string> note = {};
};
struct Receipt {
  std::int64_t number = 0;
  std::vector<Order> orders = {};
};

std::int32_t add(std::int32_t a, std::int32_t b) { return a + b; }
Task<Result<Receipt>> buy(Context&, std::vector<Order> orders) {
  if (orders.empty()) co_return fail(ErrorCode::invalid_argument, "no orders");
  Receipt receipt{.number = 7, .orders = std::move(orders)};
  co_return receipt;
}
void nothing() {}
std::string long_text(std::uint32_t bytes) { return std::string(bytes, 'x'); }
Task<Result<std::int32_t>> sum(Context&, std::string, Reader<std::int32_t> in) {
  std::int32_t total = 0;
  for (;;) {
    auto next = in.next();
    const auto item = co_await std::move(next);
    if (!item) co_return std::unexpected(item.error());
    if (!*item) co_return total;
    total += **item;
  }
}

}  // namespace functions_test

namespace {

using namespace functions_test;
using namespace testing_tools;

class Functions : public ::testing::Test {
 protected:
  void start(ServerOptions options = {}, HttpOptions http_options = {}) {
    options.loop.log = no_log();
    server = std::make_unique<Server>(std::move(options));
    server->register_handler<add, buy, nothing, long_text, sum>();
    server->enable(http(http_options));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // Returns status and body, such as "200 3".
  std::string post(std::string_view path, std::string_view json) {
    RawSocket socket = RawSocket::connected_to(server->address());
    const std::string request =
        "POST " + std::string(path) +
        " HTTP/1.0\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(json.size()) +
        "\r\n\r\n" + std::string(json);
    socket.send(as_bytes(request));
    const std::string response = socket.receive_all();
    const std::size_t end = response.find("\r\n\r\n");
    if (end == std::string::npos || response.size() < 12) return "no response";
    return response.substr(9, 3) + " " + response.substr(end + 4);
  }
  std::unique_ptr<Server> server;
};

TEST_F(Functions, AreCalledOverHttpWithJson) {
  start();
  EXPECT_EQ(post("/hawser::functions_test::add", "[1, 2]"), "200 3");
  EXPECT_EQ(post("/hawser::functions_test::nothing", ""), "200 null");
  EXPECT_EQ(post("/hawser::functions_test::buy", R"([[{"count": 2, "item": "rope"}]])"),
            R"(200 {"number":7,"orders":[{"item":"rope","count":2,"note":null}]})");
  const std::string text = post("/hawser::functions_test::long_text", "20000");
  EXPECT_EQ(text, "200 \"" + std::string(20'000, 'x') + "\"");
  EXPECT_EQ(post("/hawser::schema::list", "\"hawser::schema::describe\""),
            R"(200 {"names":["hawser::schema::list"],"more":false})");
}

TEST_F(Functions, RefuseWrongJson) {
  start();
  EXPECT_EQ(post("/hawser::functions_test::add", "[1]").substr(0, 4), "400 ");
  EXPECT_EQ(post("/hawser::functions_test::add", R"([1,"x"])"),
            "400 {\"code\":\"invalid_argument\",\"message\":\"JSON: [1]: int32: give an integer from -2147483648 to "
            "2147483647\"}\n");
  EXPECT_EQ(post("/hawser::functions_test::buy", "[[]]").substr(0, 4), "400 ");
  EXPECT_EQ(post("/hawser::functions_test::sum", "\"\"").substr(0, 4), "501 ");
}

TEST_F(Functions, AreNotServedOverHttpIfSwitchedOff) {
  start({}, {.functions = false});
  EXPECT_EQ(post("/hawser::functions_test::add", "[1, 2]").substr(0, 4), "404 ");
}

TEST_F(Functions, AreDescribed) {
  start();
  sync_wait([](std::string address) -> Task<void> {
    Client client;
    AWAIT(connected, client.connect(address));
    REQUIRE(connected);
    AWAIT(names, client.call<schema::list>("hawser::functions_test::nothin"));
    REQUIRE(names);
    EXPECT_EQ(names->names, (std::vector<std::string>{"hawser::functions_test::nothing", "hawser::functions_test::sum",
                                                      "hawser::schema::describe", "hawser::schema::list"}));
    AWAIT(described, client.call<schema::describe>("hawser::functions_test::sum"));
    REQUIRE(described);
    EXPECT_EQ(described->id, method_id<sum>);
    EXPECT_EQ(described->signature, detail::MethodFacts<sum>::signature);
    EXPECT_EQ(described->arguments.size(), 1U);
    REQUIRE(described->incoming && described->result);
    EXPECT_FALSE(described->outgoing);
    EXPECT_EQ(*described->incoming, *described->result);
    const schema::Type& number = described->types.at(*described->result);
    EXPECT_EQ(number.kind, schema::Kind::signed_integer);
    EXPECT_EQ(number.size, 4U);
    AWAIT(unknown, client.call<schema::describe>("nothing"));
    EXPECT_TRUE(is_error(unknown, ErrorCode::invalid_argument, "no method of that name"));
  }(server->address()));
}

// Who may not call may not see the names either.
TEST_F(Functions, DescriptionsPassTheInterceptors) {
  ServerOptions options;
  options.loop.log = no_log();
  server = std::make_unique<Server>(std::move(options));
  server->register_handler<add>();
  server->use(
      [](IncomingCall&, Next) -> Task<Result<void>> { co_return fail(ErrorCode::invalid_argument, "not you"); });
  ASSERT_TRUE(server->start());
  sync_wait([](std::string address) -> Task<void> {
    Client client;
    AWAIT(connected, client.connect(address));
    REQUIRE(connected);
    AWAIT(names, client.call<schema::list>(""));
    EXPECT_TRUE(is_error(names, ErrorCode::invalid_argument, "not you"));
    AWAIT(described, client.call<schema::describe>("hawser::functions_test::add"));
    EXPECT_TRUE(is_error(described, ErrorCode::invalid_argument, "not you"));
  }(server->address()));
}

TEST_F(Functions, AreNotDescribedIfSwitchedOff) {
  ServerOptions options;
  options.describe = false;
  start(std::move(options));
  sync_wait([](std::string address) -> Task<void> {
    Client client;
    AWAIT(connected, client.connect(address));
    REQUIRE(connected);
    AWAIT(names, client.call<schema::list>(""));
    EXPECT_TRUE(is_error(names, ErrorCode::unknown_method, "hawser::schema::list"));
  }(server->address()));
}

}  // namespace
}  // namespace hawser
