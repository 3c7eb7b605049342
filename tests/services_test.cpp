#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "exec/sim_poller.h"
#include "hawser/blocking_client.h"
#include "hawser/hawser.h"
#include "hawser/retry.h"
#include "protobuf/test/required.hawser.h"
#include "protobuf/test/shop.hawser.h"
#include "tests/testing.h"
#include "transport/network_access.h"
#include "transport/sim/sim_network.h"

namespace hawser::pb {
namespace {

using namespace testing_tools;
using probe::Event;
using probe::Item;
using probe::OrderReply;
using probe::OrderRequest;
using probe::Total;
using probe::Tree;
using probe::WatchRequest;

class Shop : public probe::ShopService {
 public:
  Task<Result<OrderReply>> Order(Context& context, const OrderRequest& request) override {
    if (request.item() == "nothing") co_return std::unexpected(Error::application(404, "nothing is sold out"));
    if (request.item() == "wait") {
      static_cast<void>(co_await context.loop().sleep(10s, context.token()));
      cancelled += context.token().stop_requested();
    }
    OrderReply reply;
    reply.set_text(request.has_item() ? "one " + request.item() : "no item");
    reply.set_data(request.data());
    if (!context.attachment().empty()) context.set_attachment(Buffer::copy_of(context.attachment()));
    if (const auto colour = context.metadata().find("colour")) context.add_metadata("colour", std::string(*colour));
    co_return reply;
  }
  Task<Result<Total>> Buy(Context&, Reader<Item> requests) override {
    Total total;
    while (true) {
      auto item = co_await requests.next();
      if (!item) co_return std::unexpected(item.error());
      if (!*item) break;
      total.set_price(total.price() + (*item)->price());
      total.set_items(total.items() + 1);
    }
    co_return total;
  }
  Task<Result<void>> Watch(Context&, const WatchRequest& request, Writer<Event> replies) override {
    for (int i = 0; i < request.events(); ++i) {
      Event event;
      event.set_number(i);
      auto written = co_await replies.write(event);
      if (!written) co_return std::unexpected(written.error());
    }
    if (request.events() == 0) co_return fail(ErrorCode::invalid_argument, "there are no events");
    co_return Result<void>{};
  }
  Task<Result<void>> Chat(Context&, Reader<Item> requests, Writer<Event> replies) override {
    while (true) {
      auto item = co_await requests.next();
      if (!item) co_return std::unexpected(item.error());
      if (!*item) co_return Result<void>{};
      Event event;
      event.set_text("you said " + (*item)->name());
      auto written = co_await replies.write(event);
      if (!written) co_return std::unexpected(written.error());
    }
  }
  Task<Result<google::protobuf::Empty>> Nothing(Context&, const google::protobuf::Empty&) override {
    co_return google::protobuf::Empty();
  }
  Task<Result<Tree>> Climb(Context&, const Tree& request) override { co_return request; }
  Task<Result<probe::Newer>> Age(Context&, const probe::Older& request) override {
    probe::Newer reply;
    // Fields that this version does not know return to the caller.
    reply.ParseFromString(request.SerializeAsString());
    co_return reply;
  }
  int cancelled = 0;
};

class StrictOne : public probe::StrictService {
 public:
  Task<Result<probe::Strict>> Check(Context&, const probe::Strict& request) override {
    probe::Strict reply = request;
    if (request.note() == "drop") reply.clear_age();
    co_return reply;
  }
};

enum class Net { sim, tcp };

class Services : public ::testing::TestWithParam<Net> {
 protected:
  // Runs body(client, server) with a server of both services and a connected client.
  template <class Body>
  void serve(Body body, ServerOptions server_with = {}, ClientOptions client_with = {}) {
    const bool sim = GetParam() == Net::sim;
    const std::unique_ptr<Loop> loop =
        sim ? std::make_unique<Loop>(std::make_unique<exec::SimPoller>(), LoopOptions()) : std::make_unique<Loop>();
    const auto network = sim ? std::make_shared<transport::SimNetwork>(7, transport::SimOptions()) : nullptr;
    if (sim) {
      server_with = over(network, server_with);
      server_with.listen = "server:0";
      client_with = over(network, client_with);
    }
    server_ = std::make_unique<Server>(*loop, server_with);
    server_->add_service(&shop);
    server_->add_service(&strict);
    auto work = [&]() -> Task<void> {
      REQUIRE_OK(server_->start());
      const auto client = std::make_unique<Client>(*loop, client_with);
      auto connected = co_await client->connect(server_->address());
      REQUIRE_OK(connected);
      network_ = network;
      loop_ = loop.get();
      {
        co_await body(*client);
      }
      client->close();
      co_await server_->shut_down(10ms);
      EXPECT_EQ(server_->counters().calls_in_flight, 0U);
    };
    loop->run(work());
    server_.reset();
    network_.reset();
  }
  Shop shop;
  StrictOne strict;
  std::unique_ptr<Server> server_;
  std::shared_ptr<transport::Network> network_;
  Loop* loop_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Nets, Services, ::testing::Values(Net::sim, Net::tcp),
                         [](const auto& one) { return one.param == Net::sim ? "sim" : "tcp"; });

TEST_P(Services, Unary) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    OrderRequest request;
    request.set_item("rope");
    auto reply = co_await stub.Order(request);
    REQUIRE_OK(reply);
    EXPECT_EQ(reply->text(), "one rope");
    // An rvalue is kept in the call.
    auto again = co_await stub.Order(OrderRequest(request));
    EXPECT_OK(again);
    auto none = co_await stub.Order(OrderRequest());
    REQUIRE_OK(none);
    EXPECT_EQ(none->text(), "no item");
  });
}

TEST_P(Services, OptionsAttachmentAndMetadata) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub<> stub(client);
    const std::string attached = text_of(100'000);
    const CallOptions options{.timeout = patience, .attachment = as_bytes(attached), .metadata = {{"colour", "red"}}};
    OrderRequest request;
    request.set_item("rope");
    auto reply = co_await stub.Order(options, request).reply();
    REQUIRE_OK(reply);
    EXPECT_EQ((*reply)->text(), "one rope");
    EXPECT_TRUE(std::ranges::equal(reply->attachment(), as_bytes(attached)));
    EXPECT_EQ(reply->metadata().find("colour"), "red");
  });
}

TEST_P(Services, ClientStreaming) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    auto buying = co_await stub.Buy();
    REQUIRE_OK(buying);
    auto items = buying->writer();
    for (int i = 1; i <= 100; ++i) {
      Item item;
      item.set_price(i);
      auto written = co_await items.write(item);
      REQUIRE_OK(written);
    }
    auto total = co_await buying->finish();
    REQUIRE_OK(total);
    EXPECT_EQ(total->price(), 5050);
    EXPECT_EQ(total->items(), 100);
  });
}

TEST_P(Services, ServerStreaming) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    WatchRequest request;
    request.set_events(1000);
    auto watching = co_await stub.Watch(request);
    REQUIRE_OK(watching);
    auto events = watching->reader();
    for (int i = 0; i < 1000; ++i) {
      auto event = co_await events.next();
      REQUIRE_OK(event);
      REQUIRE(event->has_value());
      EXPECT_EQ((*event)->number(), i);
    }
    auto last = co_await events.next();
    REQUIRE_OK(last);
    EXPECT_FALSE(last->has_value());
    auto end = co_await watching->finish();
    EXPECT_OK(end);
    auto refused = co_await stub.Watch(WatchRequest());
    REQUIRE_OK(refused);
    auto error = co_await refused->finish();
    EXPECT_ERROR(error, invalid_argument, "there are no events");
  });
}

TEST_P(Services, BothStreaming) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    const CallOptions options{.timeout = patience};
    auto chat = co_await stub.Chat(options);
    REQUIRE_OK(chat);
    auto out = chat->writer();
    auto in = chat->reader();
    for (const std::string word : {"hello", "how are you", "bye"}) {
      Item item;
      item.set_name(word);
      auto written = co_await out.write(item);
      REQUIRE_OK(written);
      auto event = co_await in.next();
      REQUIRE_OK(event);
      REQUIRE(event->has_value());
      EXPECT_EQ((*event)->text(), "you said " + word);
    }
    auto end = co_await chat->finish();
    EXPECT_OK(end);
  });
}

// A call, its whole reply, and streams in both directions and in one.
template <class Stub>
Task<void> use_every_kind(Stub& stub) {
  OrderRequest request;
  request.set_item("rope");
  auto reply = co_await stub.Order(request);
  REQUIRE_OK(reply);
  EXPECT_EQ(reply->text(), "one rope");
  const CallOptions options{.timeout = patience};
  auto whole = co_await stub.Order(options, request).reply();
  REQUIRE_OK(whole);
  EXPECT_EQ((**whole).text(), "one rope");
  auto chat = co_await stub.Chat(options);
  REQUIRE_OK(chat);
  Item item;
  item.set_name("hello");
  auto out = chat->writer();
  auto written = co_await out.write(item);
  REQUIRE_OK(written);
  auto in = chat->reader();
  auto event = co_await in.next();
  REQUIRE_OK(event);
  REQUIRE(event->has_value());
  EXPECT_EQ((*event)->text(), "you said hello");
  auto end = co_await chat->finish();
  EXPECT_OK(end);
  WatchRequest watch;
  watch.set_events(1);
  auto watching = co_await stub.Watch(options, watch);
  REQUIRE_OK(watching);
  auto watched = co_await watching->finish();
  EXPECT_OK(watched);
}

TEST_P(Services, OverAPoolAndRetrying) {
  serve([&](Client& client) -> Task<void> {
    PoolOptions pooled;
    if (network_ != nullptr) pooled = over(network_, pooled);
    const std::shared_ptr<ClientPool> pool = ClientPool::create(*loop_, server_->address(), pooled);
    probe::ShopService::Stub stub(*pool);
    co_await use_every_kind(stub);
    Retrying retrying(client);
    probe::ShopService::Stub retrying_stub(retrying);
    co_await use_every_kind(retrying_stub);
    Retrying retrying_pool(*pool);
    probe::ShopService::Stub retrying_pool_stub(retrying_pool);
    co_await use_every_kind(retrying_pool_stub);
  });
}

TEST_P(Services, EmptyMessages) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    google::protobuf::Empty request;
    auto reply = co_await stub.Nothing(request);
    EXPECT_OK(reply);
  });
}

TEST_P(Services, MessagesOfEightMegabytes) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    OrderRequest request;
    request.set_item("large");
    request.set_data(text_of(8 << 20));
    auto reply = co_await stub.Order(request);
    REQUIRE_OK(reply);
    EXPECT_EQ(reply->data(), request.data());
  });
}

TEST_P(Services, ErrorsOfTheHandler) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    OrderRequest request;
    request.set_item("nothing");
    auto reply = co_await stub.Order(request);
    EXPECT_ERROR(reply, application, "sold out");
    EXPECT_EQ(reply.error().application_code, 404);
  });
}

TEST_P(Services, MethodsThatAreNotImplemented) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    OrderRequest request;
    auto reply = co_await stub.Left(request);
    EXPECT_ERROR(reply, unknown_method, "'probe.ShopService/Left' is declared by its service and not implemented");
    EXPECT_EQ(reply.error().application_code, 0);
    auto stream = co_await stub.LeftStream();
    REQUIRE_OK(stream);
    auto end = co_await stream->finish();
    EXPECT_ERROR(end, unknown_method, "probe.ShopService/LeftStream");
  });
}

TEST_P(Services, ServicesThatAreNotRegistered) {
  serve([&](Client& client) -> Task<void> {
    probe::Names::Stub stub(client);
    OrderRequest request;
    auto first = co_await stub.delete_(request);
    EXPECT_ERROR(first, unknown_method, "probe.Names/delete");
    auto second = co_await stub.Stub_(request);
    EXPECT_ERROR(second, unknown_method, "probe.Names/Stub");
    auto third = co_await stub.Names_(request);
    EXPECT_ERROR(third, unknown_method, "probe.Names/Names");
  });
}

TEST_P(Services, TheServerLimitsDepth) {
  ServerOptions options;
  options.decode_limits.message_depth_max = 10;
  serve(
      [&](Client& client) -> Task<void> {
        probe::ShopService::Stub stub(client);
        Tree tree;
        Tree* top = &tree;
        for (int i = 0; i < 9; ++i) top = top->add_branches();
        auto reply = co_await stub.Climb(tree);
        EXPECT_OK(reply);
        top->add_branches()->add_branches();
        auto refused = co_await stub.Climb(tree);
        EXPECT_ERROR(refused, protocol_error, "probe.Tree");
        EXPECT_ERROR(refused, protocol_error, "message_depth_max");
        top->clear_branches();
        auto after = co_await stub.Climb(tree);  // The connection is not affected.
        EXPECT_OK(after);
      },
      options);
}

TEST_P(Services, TheServerLimitsMemory) {
  ServerOptions options;
  options.decode_limits.memory_factor_max = 4;
  options.decode_limits.memory_bytes_base = 16 << 10;
  serve(
      [&](Client& client) -> Task<void> {
        probe::ShopService::Stub stub(client);
        Tree tree;
        for (int i = 0; i < 100'000; ++i) tree.add_branches();
        auto refused = co_await stub.Climb(tree);
        EXPECT_ERROR(refused, limit_exceeded, "probe.Tree");
        auto after = co_await stub.Climb(Tree());
        EXPECT_OK(after);
      },
      options);
}

TEST_P(Services, MessagesBeyondTheLimitOfTheServer) {
  ServerOptions options;
  options.message_bytes_max = 1 << 20;
  serve(
      [&](Client& client) -> Task<void> {
        probe::ShopService::Stub stub(client);
        OrderRequest request;
        request.set_data(text_of(2 << 20));
        auto refused = co_await stub.Order(request);
        EXPECT_ERROR(refused, limit_exceeded, "message_bytes_max");
        auto after = co_await stub.Order(OrderRequest());
        EXPECT_OK(after);
      },
      options);
}

TEST_P(Services, RequiredFields) {
  serve([&](Client& client) -> Task<void> {
    probe::StrictService::Stub stub(client);
    probe::Strict request;
    request.set_name("x");
    auto refused = co_await stub.Check(request);
    EXPECT_ERROR(refused, invalid_argument, "a required field of probe.Strict is not set");
    request.set_age(3);
    auto reply = co_await stub.Check(request);
    EXPECT_OK(reply);
    request.set_note("drop");
    auto incomplete = co_await stub.Check(request);
    EXPECT_ERROR(incomplete, invalid_argument, "a required field of probe.Strict is not set");
  });
}

TEST_P(Services, UnknownFieldsTravel) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    probe::Newer newer;
    newer.set_name("Ada");
    newer.set_age(36);
    probe::Older request;
    REQUIRE(request.ParseFromString(newer.SerializeAsString()));
    auto reply = co_await stub.Age(request);
    REQUIRE_OK(reply);
    EXPECT_EQ(reply->age(), 36);
  });
}

TEST_P(Services, DeadlineAndCancellation) {
  serve([&](Client& client) -> Task<void> {
    probe::ShopService::Stub stub(client);
    OrderRequest request;
    request.set_item("wait");
    const CallOptions options{.timeout = 20ms};
    auto late = co_await stub.Order(options, request);
    EXPECT_ERROR(late, deadline_exceeded, "");
    auto seen = co_await eventually(*loop_, [&] { return shop.cancelled == 1; });
    EXPECT_TRUE(seen);
  });
}

TEST(ServicesOfThreads, StubsBlockOrBeginCalls) {
  Shop shop;
  Server server;
  server.add_service(&shop);
  ASSERT_TRUE(server.start());
  BlockingOptions patient;
  patient.pool.client.call_timeout = patience;
  BlockingClient client(server.address(), patient);
  OrderRequest request;
  request.set_item("lamp");
  const probe::ShopService::Stub blocking(client);
  const Result<OrderReply> reply = blocking.Order(request);
  ASSERT_TRUE(reply) << error_of(reply);
  EXPECT_EQ(reply->text(), "one lamp");

  StartingClient starting(client);
  const probe::ShopService::Stub beginning(starting);
  auto first = beginning.Order(request);
  auto second = beginning.Order(CallOptions{.timeout = patience}, request);
  auto third = beginning.Order(request);
  request.set_item("nothing");  // The calls have copies.
  EXPECT_EQ(first.get()->text(), "one lamp");
  sync_wait([](decltype(second)& waiting) -> Task<void> {
    const Result<OrderReply> answer = co_await waiting;
    REQUIRE_OK(answer);
    EXPECT_EQ(answer->text(), "one lamp");
  }(second));
  std::atomic<bool> called{false};
  third.then([&](const Result<OrderReply>& answer) {
    EXPECT_TRUE(answer && answer->text() == "one lamp");
    called = true;
  });
  EXPECT_TRUE(soon([&] { return called.load(); }));
}

TEST(ServiceNames, AreThoseOfTheProto) {
  EXPECT_EQ(method_name<&probe::ShopService::Order>, "probe.ShopService/Order");
  EXPECT_EQ(probe::ShopService::hawser_service_name, "probe.ShopService");
}

TEST(ServiceNames, AServiceIsRegisteredOnce) {
  Shop shop;
  Server server;
  server.add_service(&shop);
  EXPECT_THROW(server.add_service(&shop), std::logic_error);
}

}  // namespace
}  // namespace hawser::pb
