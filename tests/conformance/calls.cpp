#include <algorithm>

#include "tests/conformance/backend.h"
#include "tests/conformance/handlers.h"

// Calls with different kinds of functions, arguments, results and sizes.
namespace hawser::conformance {
namespace views {

// Plain functions that return views of arguments whose characters lie within the argument objects.
std::string_view name_with_attachment(Context& context, const std::string& name) {
  context.set_attachment(Buffer::copy_of("attached"));
  return name;
}
struct NameAndData {
  std::string_view name;
  std::string_view data;
};
NameAndData name_and_data(const std::string& name, std::string_view data) { return {name, data}; }
const std::string& same_string(Context& context, const std::string& name) {
  context.set_attachment(Buffer::copy_of("attached"));
  return name;
}
NameAndData from_optional(const std::optional<std::string>& name, const std::vector<std::string>& data) {
  return {*name, data.at(0)};
}

std::vector<std::string> same_strings(std::vector<std::string> parts) { return parts; }

}  // namespace views
using namespace views;

TEST_P(Conformance, CallsPlainFunctions) {
  serve<echo, owned, add, nothing>([](Server& server, Client& client) -> Task<void> {
    auto echoed = co_await client.call<echo>("hello");
    REQUIRE_OK(echoed);
    EXPECT_EQ(*echoed, "hello");
    auto extended = co_await client.call<owned>(std::string("hello"));
    EXPECT_EQ(extended, "hello!");
    auto sum = co_await client.call<add>(-3, 5'000'000'000);
    EXPECT_EQ(sum, 4'999'999'997);
    auto done = co_await client.call<nothing>();
    EXPECT_OK(done);
    EXPECT_EQ(server.counters().calls, 4U);
    EXPECT_EQ(server.counters().connections_open, 1U);
    EXPECT_FALSE(client.transport().empty());
  });
}

TEST_P(Conformance, CallsCoroutines) {
  serve<slow_echo, slow_view, slow_nothing>([](Server&, Client& client) -> Task<void> {
    auto echoed = co_await client.call<slow_echo>("hello", 1U);
    EXPECT_EQ(echoed, "hello");
    for (const std::size_t bytes : {0UL, 5UL, 5'000UL, 9'000UL, 50'000UL, 300'000UL}) {
      const std::string text = text_of(bytes);
      auto viewed = co_await client.call<slow_view>(text);
      EXPECT_TRUE(viewed == text) << bytes;
    }
    auto done = co_await client.call<slow_nothing>();
    EXPECT_OK(done);
  });
}

TEST_P(Conformance, CallsMemberFunctions) {
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::order, &TestService::order_later, &TestService::kinds>(&service);
  run_connected(*server, {}, [](Server&, Client& client) -> Task<void> {
    auto first = co_await client.call<&TestService::order>("rope", 2U);
    EXPECT_EQ(first, 2U);
    auto second = co_await client.call<&TestService::order_later>("rope", 3U);
    EXPECT_EQ(second, 5U);
    auto kinds = co_await client.call<&TestService::kinds>();
    EXPECT_EQ(kinds, 1U);
  });
  EXPECT_EQ(service.kinds(), 1U);
}

TEST_P(Conformance, CarriesEveryKindOfArgument) {
  serve<numbers, squares, mirror, lines>([](Server&, Client& client) -> Task<void> {
    const std::vector<std::uint32_t> values{1, 2, 3, 0xffff'ffff};
    auto same = co_await client.call<numbers>(values);
    EXPECT_EQ(same, values);
    const std::vector<std::uint32_t> none;
    auto empty = co_await client.call<numbers>(none);
    EXPECT_EQ(empty, none);
    std::vector<std::uint64_t> many(100'000, 3);
    auto squared = co_await client.call<squares>(std::move(many));
    REQUIRE_OK(squared);
    EXPECT_EQ(*squared, std::vector<std::uint64_t>(100'000, 9));

    const Shape shape{.name = text_of(10'000),
                      .points = std::vector<Point>(2'000, Point{4, 5}),
                      .centre = Point{1, 2},
                      .weights = {{"a", 0.5}, {"b", -1}},
                      .tag = "blue"};
    auto mirrored = co_await client.call<mirror>(shape);
    REQUIRE_OK(mirrored);
    EXPECT_EQ(mirrored->points, std::vector<Point>(2'000, Point{-4, 5}));
    Shape back = std::move(*mirrored);
    back.points = shape.points;
    EXPECT_EQ(back, shape);

    const std::string large = text_of(20'000);
    auto reversed = co_await client.call<lines>(std::vector<std::string_view>{"one", large, ""}, true);
    REQUIRE_OK(reversed);
    EXPECT_EQ(*reversed, (std::vector<std::string>{"", large, "one"}));
  });
}

// A reply that is sent without a copy outlives its handler, and so do the arguments. Short strings among them must not
// be moved before the reply has been encoded.
TEST_P(Conformance, LargeRepliesMayShowShortArguments) {
  serve<name_with_attachment, name_and_data, same_string, from_optional>([](Server&, Client& client) -> Task<void> {
    for (const std::size_t bytes : {0UL, 1UL, 6UL, 15UL, 16UL, 40UL, 7'000UL, 20'000UL}) {
      const std::string name = text_of(bytes);
      auto attached = co_await client.call<name_with_attachment>(name).reply();
      REQUIRE_OK(attached);
      EXPECT_EQ(attached->value(), name);
      EXPECT_EQ(as_text(attached->attachment()), "attached");
      auto same = co_await client.call<same_string>(name).reply();
      REQUIRE_OK(same);
      EXPECT_EQ(same->value(), name);
      for (const std::size_t data_bytes : {5UL, 8'192UL, 20'000UL, 100'000UL}) {
        const std::string data = text_of(data_bytes, 'D');
        auto both = co_await client.call<name_and_data>(name, data).reply();
        REQUIRE_OK(both);
        EXPECT_EQ(both->value().name, name);
        EXPECT_EQ(both->value().data, data);
        const std::vector parts{data};  // GCC 13 crashes on a list of initializers within co_await.
        auto optional = co_await client.call<from_optional>(std::optional(name), parts).reply();
        REQUIRE_OK(optional);
        EXPECT_EQ(optional->value().name, name);
        EXPECT_EQ(optional->value().data, data);
      }
    }
  });
}

// Sizes around each threshold: payload pieces, copies of small requests, payloads with a receive buffer, blocks that
// are larger than a pool keeps.
TEST_P(Conformance, CarriesEverySize) {
  serve<echo, slow_view>([](Server&, Client& client) -> Task<void> {
    std::vector<std::size_t> sizes{0, 1};
    for (const std::size_t at : {4UL << 10, 8UL << 10, 32UL << 10, 64UL << 10, 256UL << 10, 1UL << 20}) {
      sizes.insert(sizes.end(), {at - 1, at, at + 1});
    }
    sizes.push_back(20UL << 20);
    for (const std::size_t bytes : sizes) {
      const std::string text = text_of(bytes);
      auto in_place = co_await client.call<echo>(text);
      EXPECT_TRUE(in_place == text) << bytes << " " << error_of(in_place);
      auto by_coroutine = co_await client.call<slow_view>(text);
      EXPECT_TRUE(by_coroutine == text) << bytes << " " << error_of(by_coroutine);
    }
  });
}

TEST_P(Conformance, GivesWholeReplies) {
  serve<echo, numbers, reflect>([](Server&, Client& client) -> Task<void> {
    for (const std::size_t bytes : {0UL, 100UL, 5'000UL, 10'000UL, 100'000UL}) {
      const std::string text = text_of(bytes);
      auto reply = co_await client.call<echo>(text).reply();
      REQUIRE_OK(reply);
      // Blocks that are received in between must not change the bytes that the reply refers to.
      for (int i = 0; i < 20; ++i) {
        auto other = co_await client.call<echo>(std::string(bytes + 1, 'x'));
        EXPECT_OK(other);
      }
      EXPECT_TRUE(reply->value() == text) << bytes;
      EXPECT_TRUE(reply->attachment().empty());
      EXPECT_TRUE(reply->metadata().empty());
    }
    const std::vector<std::uint32_t> values(10'000, 7);
    auto span = co_await client.call<numbers>(values).reply();
    REQUIRE_OK(span);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), (*span)->begin(), (*span)->end()));
  });
}

TEST_P(Conformance, LandsRepliesInTheCallersMemory) {
  serve<echo, zeros>([](Server&, Client& client) -> Task<void> {
    for (const std::size_t bytes : {1UL, 5UL, 8191UL, 8192UL, 8193UL, (32UL << 10) - 1, 32UL << 10, (32UL << 10) + 1,
                                    (1UL << 20) - 1, 1UL << 20}) {
      const std::string text = text_of(bytes);
      std::vector<std::byte> memory(bytes);  // Exactly the size of the reply.
      auto reply = co_await client.call<echo>(text).into(memory);
      REQUIRE_OK(reply);
      EXPECT_TRUE(reply->value() == text) << bytes;
      EXPECT_EQ(static_cast<const void*>(reply->value().data()), memory.data()) << bytes;
    }
    std::vector<std::byte> roomy(100);
    auto small = co_await client.call<echo>("small").into(roomy);
    REQUIRE_OK(small);
    EXPECT_EQ(small->value(), "small");
    EXPECT_EQ(static_cast<const void*>(small->value().data()), roomy.data());

    for (const std::size_t bytes : {2UL, 9UL << 10, 40UL << 10, 4UL << 20}) {
      std::vector<std::byte> narrow(bytes - 1, std::byte{0x5a});
      auto refused = co_await client.call<zeros>(bytes).into(narrow);
      EXPECT_ERROR(refused, limit_exceeded, "into()");
      EXPECT_TRUE(std::all_of(narrow.begin(), narrow.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
    }
    auto after = co_await client.call<echo>("goes on");
    EXPECT_EQ(after, "goes on");
  });
}

// A call that has run must not be reported as not executed, or the caller sends it again.
TEST_P(Conformance, ErrorsPassedOnDoNotDenyThatTheHandlerRan) {
  serve<passes_on>([](Server&, Client& client) -> Task<void> {
    for (const ErrorCode code :
         {ErrorCode::not_sent, ErrorCode::unavailable, ErrorCode::unknown_method, ErrorCode::signature_mismatch}) {
      auto reply = co_await client.call<passes_on>(static_cast<int>(code));
      EXPECT_ERROR(reply, application, to_string(code));
      EXPECT_FALSE(reply.error().not_executed());
    }
    auto shed = co_await client.call<passes_on>(static_cast<int>(ErrorCode::overloaded));
    EXPECT_ERROR(shed, overloaded, "upstream");
  });
}

TEST_P(Conformance, RepliesOutOfOrder) {
  serve<slow_echo, echo>([](Server&, Client& client) -> Task<void> {
    std::vector<std::string> order;
    Scope scope;
    auto one = [&](std::string text, std::uint32_t milliseconds) -> Task<void> {
      auto reply = co_await client.call<slow_echo>(text, milliseconds);
      EXPECT_EQ(reply, text);
      order.push_back(text);
    };
    scope.spawn(one("slow", 200));
    scope.spawn(one("quick", 1));
    auto plain = co_await client.call<echo>("at once");
    EXPECT_OK(plain);
    order.insert(order.begin(), "at once");
    co_await scope.join();
    EXPECT_EQ(order, (std::vector<std::string>{"at once", "quick", "slow"}));
  });
}

TEST_P(Conformance, ManyCallsAtOnce) {
  serve<slow_echo, echo>([](Server&, Client& client) -> Task<void> {
    Scope scope;
    std::size_t good = 0;
    std::string complaint;
    auto judge = [&](const Result<std::string>& reply, const std::string& text) {
      good += reply == text;
      if (reply != text && complaint.empty()) complaint = reply ? "another's reply" : error_of(reply);
    };
    auto one = [&](std::uint32_t i) -> Task<void> {
      const std::string text = text_of(i % 100 * 200);
      if (i % 3 == 0) {
        auto reply = co_await client.call<slow_echo>(text, i % 10);
        judge(reply, text);
      } else {
        auto reply = co_await client.call<echo>(text);
        judge(reply, text);
      }
    };
    for (std::uint32_t i = 0; i < 3'000; ++i) scope.spawn(one(i));
    EXPECT_EQ(client.calls_in_flight(), 3'000U);
    co_await scope.join();
    EXPECT_EQ(good, 3'000U) << complaint;
    EXPECT_EQ(client.calls_in_flight(), 0U);
  });
}

TEST_P(Conformance, SendsRequestsAheadOfTheirReplies) {
  serve<slow_echo, echo>([](Server&, Client& client) -> Task<void> {
    std::vector<PendingCall<slow_echo>> pending;
    for (std::uint32_t i = 0; i < 50; ++i) {
      auto sent = co_await client.send_request<slow_echo>(std::to_string(i), 50 - i);
      REQUIRE_OK(sent);
      pending.push_back(std::move(*sent));
    }
    EXPECT_EQ(client.calls_in_flight(), 50U);
    for (std::uint32_t i = 0; i < 50; ++i) {
      auto reply = co_await std::move(pending[i]);
      EXPECT_EQ(reply, std::to_string(i));
    }
    // An argument passed as an lvalue may be destroyed as soon as the request has been sent.
    auto text = std::make_unique<std::string>(text_of(3 << 20));
    const std::string copy = *text;
    auto sent = co_await client.send_request<echo>(*text);
    REQUIRE_OK(sent);
    std::fill(text->begin(), text->end(), '?');
    text.reset();
    auto reply = co_await std::move(*sent);
    EXPECT_TRUE(reply == copy);
  });
}

// The request has the values that the arguments have when the task is awaited. They may differ, in size too, from those
// at the time when the task was made.
TEST_P(Conformance, ArgumentsMayChangeUntilTheyAreSent) {
  serve<echo, same_strings>([](Server&, Client& client) -> Task<void> {
    for (const auto& [before, after] : {std::pair{3UL, 100'000UL}, {100'000UL, 3UL}, {9'000UL, 0UL}, {0UL, 7'000UL}}) {
      std::string text = text_of(before);
      auto sending = client.send_request<echo>(text);
      text = text_of(after, 'n');
      text.shrink_to_fit();
      auto sent = co_await std::move(sending);
      REQUIRE_OK(sent);
      auto reply = co_await std::move(*sent);
      EXPECT_TRUE(reply == text) << before << " " << error_of(reply);
      std::vector<std::string> parts(before / 1000 + 1, text);
      auto sending_many = client.send_request<same_strings>(parts);
      parts.assign(after / 1000 + 1, text_of(50));
      auto sent_many = co_await std::move(sending_many);
      REQUIRE_OK(sent_many);
      auto many = co_await std::move(*sent_many);
      EXPECT_TRUE(many == parts) << error_of(many);
    }
  });
}

TEST_P(Conformance, DroppedPendingCallsAreCancelled) {
  TestService service;
  auto server = make_server();
  server->register_handler<&TestService::wait_for_stop>(&service);
  server->register_handler<echo>();
  run_connected(*server, {}, [&](Server&, Client& client) -> Task<void> {
    {
      auto dropped = co_await client.send_request<&TestService::wait_for_stop>();
      REQUIRE_OK(dropped);
      auto begun = co_await eventually(loop(), [&] { return service.waiting == 1; });
      EXPECT_TRUE(begun);
    }
    auto notified = co_await eventually(loop(), [&] { return service.stopped == 1; });
    EXPECT_TRUE(notified);
    auto other = co_await client.call<echo>("goes on");
    EXPECT_EQ(other, "goes on");
    auto free = co_await eventually(loop(), [&] { return client.calls_in_flight() == 0; });
    EXPECT_TRUE(free);
  });
}

// A request that is dropped while it is being sent is sent completely, from a copy.
TEST_P(Conformance, DroppedRequestsDoNotTearTheStream) {
  serve<echo>([&](Server&, Client& client) -> Task<void> {
    for (int i = 0; i < 5; ++i) {
      {
        auto text = std::make_unique<std::string>(text_of(8 << 20));
        Scope scope;
        scope.spawn([](Client& from, const std::string& argument) -> Task<void> {
          auto reply = co_await from.call<echo>(argument);
          EXPECT_TRUE(reply == argument) << "transports within one machine may be so fast: " << error_of(reply);
        }(client, *text));
        co_await loop().sleep(Duration(i * 100'000));
      }
      auto other = co_await client.call<echo>("goes on");
      EXPECT_EQ(other, "goes on");
    }
  });
}

TEST_P(Conformance, ChecksumsAgree) {
  ClientOptions options;
  options.checksum = true;
  serve<echo, slow_view, mirror, reflect>(server_options(), options, [](Server& server, Client& client) -> Task<void> {
    for (const std::size_t bytes : {0UL, 10UL, 9'000UL, 40'000UL, 1UL << 20}) {
      const std::string text = text_of(bytes);
      auto reply = co_await client.call<echo>(text);
      EXPECT_TRUE(reply == text);
      auto viewed = co_await client.call<slow_view>(text);
      EXPECT_TRUE(viewed == text);
      const std::string attached = text_of(bytes / 2);
      const CallOptions whole_options{.attachment = as_bytes(attached), .metadata = {{"k", "v"}}};
      auto whole = co_await client.call<reflect>(whole_options, text).reply();
      REQUIRE_OK(whole);
      EXPECT_TRUE(as_text(whole->attachment()) == attached);
    }
    EXPECT_EQ(server.counters().protocol_errors, 0U);
  });
}

}  // namespace hawser::conformance
