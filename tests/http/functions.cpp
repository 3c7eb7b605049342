#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hawser/detail/json_transcoder.h"
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
std::size_t measure(std::string_view text) { return text.size(); }
Task<std::string> later(Context& context, std::string text) {
  co_await context.loop().sleep(std::chrono::milliseconds(1));
  context.add_metadata("x-back", std::string(context.metadata().find("x-one").value_or("none")));
  co_return text;
}
std::atomic<bool> blocking{false};
std::atomic<bool> blocked{false};
int block() {
  blocked = true;
  blocking.wait(true);
  return 1;
}
std::atomic<int> conversions_on_a_loop{0};
std::atomic<int> conversions_elsewhere{0};

// One text between quotes. Counts on which threads long ones are converted.
class CountingTranscoder final : public detail::JsonTranscoder {
 public:
  Result<Buffer> arguments_from_json(std::string_view json) const override {
    count(json.size());
    return Buffer::copy_of(testing_tools::text_body(json.substr(1, json.size() - 2)));
  }
  Result<std::string> result_to_json(Bytes body, Bytes payload) const override {
    count(body.size() + payload.size());
    return "\"" + std::string(payload.empty() ? as_text(body).substr(4) : as_text(payload)) + "\"";
  }
  std::string_view encoding() const noexcept override { return "hawser"; }

 private:
  static void count(std::size_t bytes) {
    if (bytes > 10'000) (Loop::current() != nullptr ? conversions_on_a_loop : conversions_elsewhere).fetch_add(1);
  }
};

std::string long_text(std::uint32_t bytes) { return std::string(bytes, 'x'); }
Task<Result<std::int32_t>> sum(Context&, std::string, Reader<std::int32_t> in) {
  std::int32_t total = 0;
  for (;;) {
    const auto item = co_await in.next();
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
    server->register_handler<add, buy, nothing, long_text, sum, measure, later>();
    server->enable(http(http_options));
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  // Returns status and body, such as "200 3".
  std::string post(std::string_view path, std::string_view json, std::string_view fields = "") {
    RawSocket socket = RawSocket::connected_to(server->address());
    const std::string request = "POST " + std::string(path) + " HTTP/1.0\r\nHost: x\r\n" + std::string(fields) +
                                "Content-Type: application/json\r\nContent-Length: " + std::to_string(json.size()) +
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

// Conversion takes up to half a second for a megabyte.
TEST_F(Functions, LongJsonIsConvertedOnAnotherThread) {
  conversions_on_a_loop = conversions_elsewhere = 0;
  server = std::make_unique<Server>(ServerOptions{});
  using Facts = detail::MethodFacts<later>;
  server->add_method({.id = Facts::id,
                      .signature = Facts::signature,
                      .name = "test.Text/Later",
                      .handler = std::make_unique<detail::FunctionHandler<later, void>>(nullptr, HandlerOptions{}),
                      .json = std::make_shared<CountingTranscoder>()});
  server->enable(http());
  ASSERT_TRUE(server->start());
  const std::string text(300'000, 'x');
  EXPECT_EQ(post("/test.Text/Later", "\"" + text + "\""), "200 \"" + text + "\"");
  EXPECT_EQ(conversions_on_a_loop.load(), 0);
  EXPECT_EQ(conversions_elsewhere.load(), 2);
  EXPECT_EQ(post("/test.Text/Later", "\"hi\""), "200 \"hi\"");
}

TEST_F(Functions, LongRequestsOfOneConnectionAreAnsweredInOrder) {
  start();
  RawSocket socket = RawSocket::connected_to(server->address());
  std::string expected;
  std::jthread sender([&] {
    for (int i = 0; i < 20; ++i) {
      const std::string json = "\"" + std::string(i % 3 == 2 ? 10 : 100'000, static_cast<char>('a' + i)) + "\"";
      const std::string request =
          "POST /hawser::functions_test::later HTTP/1.1\r\nHost: x\r\nX-One: " + std::to_string(i) +
          (i == 19 ? "\r\nConnection: close" : "") + "\r\nContent-Length: " + std::to_string(json.size()) + "\r\n\r\n" +
          json;
      if (!socket.send(as_bytes(request))) return;
    }
  });
  const std::string responses = socket.receive_all();
  std::size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string json = "\"" + std::string(i % 3 == 2 ? 10 : 100'000, static_cast<char>('a' + i)) + "\"";
    const std::size_t field = responses.find("x-back: " + std::to_string(i) + "\r\n", at);
    ASSERT_NE(field, std::string::npos) << i;
    at = responses.find("\r\n\r\n", field);
    ASSERT_NE(at, std::string::npos) << i;
    at += 4;
    EXPECT_EQ(responses.compare(at, json.size(), json), 0) << i;
    at += json.size();
  }
  EXPECT_EQ(at, responses.size());
}

TEST_F(Functions, LongJsonIsRefusedAsShortJsonIs) {
  start();
  const std::string answer = post("/hawser::functions_test::add", "[1,\"" + std::string(100'000, 'x') + "\"]");
  EXPECT_EQ(answer.substr(0, 4), "400 ");
  EXPECT_NE(answer.find("JSON: [1]: int32: give an integer"), std::string::npos) << answer;
}

TEST_F(Functions, ADeadlinePassesWhileLongJsonWaitsForAThread) {
  blocking = true;
  blocked = false;
  ServerOptions options;
  options.loop.offload_threads_max = 1;
  options.loop.log = no_log();
  server = std::make_unique<Server>(std::move(options));
  server->register_handler<measure>();
  server->register_handler<block>({.offload = true});
  server->enable(http());
  ASSERT_TRUE(server->start());
  std::string of_block;
  std::jthread blocker([&] { of_block = post("/hawser::functions_test::block", ""); });
  EXPECT_TRUE(soon([] { return blocked.load(); }));
  const std::string json = "\"" + std::string(100'000, 'x') + "\"";
  EXPECT_EQ(post("/hawser::functions_test::measure", json, "timeout-ms: 20\r\n").substr(0, 4), "504 ");
  {
    // A client that goes away while its JSON waits.
    RawSocket gone = RawSocket::connected_to(server->address());
    const std::string request =
        "POST /hawser::functions_test::measure HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(json.size()) +
        "\r\n\r\n" + json;
    EXPECT_TRUE(gone.send(as_bytes(request)));
    gone.reset();
  }
  blocking = false;
  blocking.notify_all();
  blocker.join();
  EXPECT_EQ(of_block, "200 1");
  EXPECT_EQ(post("/hawser::functions_test::measure", json), "200 100000");
}

TEST_F(Functions, RefuseWrongJson) {
  start();
  EXPECT_EQ(post("/hawser::functions_test::add", "[1]").substr(0, 4), "400 ");
  EXPECT_EQ(post("/hawser::functions_test::add", R"([1,"x"])"),
            "400 {\"code\":\"invalid_argument\",\"message\":\"JSON: [1]: int32: give an integer from -2147483648 to "
            "2147483647\"}\n");
  EXPECT_EQ(post("/hawser::functions_test::buy", "[[]]").substr(0, 4), "400 ");
  using namespace std::string_view_literals;
  for (const std::string_view wrong : {"[1, 2]\0"sv, "[1, 2]\0[3]"sv, "\0[1, 2]"sv}) {
    EXPECT_EQ(post("/hawser::functions_test::add", wrong).substr(0, 4), "400 ") << wrong.size();
  }
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
    auto connected = co_await client.connect(address);
    REQUIRE(connected);
    auto names = co_await client.call<schema::list>("hawser::functions_test::nothin");
    REQUIRE(names);
    EXPECT_EQ(names->names,
              (std::vector<std::string>{"hawser::functions_test::nothing", "hawser::functions_test::sum",
                                        "hawser::is_serving", "hawser::schema::describe", "hawser::schema::list"}));
    auto described = co_await client.call<schema::describe>("hawser::functions_test::sum");
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
    auto unknown = co_await client.call<schema::describe>("nothing");
    EXPECT_TRUE(is_error(unknown, ErrorCode::invalid_argument, "the server has no method nothing"));
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
    auto connected = co_await client.connect(address);
    REQUIRE(connected);
    auto names = co_await client.call<schema::list>("");
    EXPECT_TRUE(is_error(names, ErrorCode::invalid_argument, "not you"));
    auto described = co_await client.call<schema::describe>("hawser::functions_test::add");
    EXPECT_TRUE(is_error(described, ErrorCode::invalid_argument, "not you"));
  }(server->address()));
}

TEST_F(Functions, AreNotDescribedIfSwitchedOff) {
  ServerOptions options;
  options.describe = false;
  start(std::move(options));
  sync_wait([](std::string address) -> Task<void> {
    Client client;
    auto connected = co_await client.connect(address);
    REQUIRE(connected);
    auto names = co_await client.call<schema::list>("");
    EXPECT_TRUE(is_error(names, ErrorCode::unknown_method, "hawser::schema::list"));
  }(server->address()));
}

}  // namespace
}  // namespace hawser
