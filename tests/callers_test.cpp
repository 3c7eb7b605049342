#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hawser/blocking_client.h"
#include "hawser/brpc.h"
#include "hawser/cluster_client.h"
#include "hawser/grpc_client.h"
#include "hawser/interceptor.h"
#include "hawser/retry.h"
#include "hawser/scope.h"
#include "tests/grpc/raw_service.h"
#include "tests/grpc/raw_stubs.h"
#include "tests/testing.h"

// The same calls by each kind of caller over each protocol. Application errors of gRPC are statuses, so that the
// handlers fail with these.
namespace hawser::callers {

using namespace testing_tools;

struct Native {
  static ClientOptions client() { return {}; }
  static constexpr std::string_view name = "hawser";
};
struct Grpc {
  static ClientOptions client() { return grpc_client(); }
  static constexpr std::string_view name = "grpc";
};
struct BaiduStd {
  static ClientOptions client() { return baidu_std_client(); }
  static constexpr std::string_view name = "baidu_std";
};

static_assert(Caller<Client> && Caller<ClientPool> && Caller<BlockingClient> && Caller<StartingClient>);
static_assert(Caller<ClusterClient> && Caller<Retrying<Client>> && Caller<Retrying<ClientPool>> && !Caller<Server>);

// The kinds of callers. call() and count() wait for their results.

template <class Made>
struct OnLoop {
  template <auto F>
  Result<Raw> call(CallOptions options, Raw request) {
    return loop.run([](Made& by, CallOptions with, Raw given) -> Task<Result<Raw>> {
      auto reply = co_await by.template call<F>(with, given);
      co_return reply;
    }(*made, std::move(options), std::move(request)));
  }
  Result<int> count(int items) { return loop.run(count_over(*made, items)); }
  // Makes calls at the same time, and returns how many have succeeded.
  int together(int calls) {
    int succeeded = 0;
    loop.run([](Made& by, int number, int& good) -> Task<void> {
      Scope scope;
      for (int i = 0; i < number; ++i) {
        scope.spawn([](Made& from, int& sum) -> Task<void> {
          auto reply = co_await from.template call<&remote::echo>(Raw{"hello"});
          sum += reply.has_value() ? 1 : 0;
        }(by, good));
      }
      co_await scope.join();
    }(*made, calls, succeeded));
    return succeeded;
  }
  template <class By>
  static Task<Result<int>> count_over(By& by, int items) {
    auto call = co_await by.template open<&remote::count>(Raw{std::to_string(items)});
    if (!call) co_return std::unexpected(call.error());
    auto reader = call->reader();
    int read = 0;
    while (true) {
      auto item = co_await reader.next();
      if (!item) co_return std::unexpected(item.error());
      if (!*item) break;
      ++read;
    }
    auto end = co_await call->finish();
    if (!end) co_return std::unexpected(end.error());
    co_return read;
  }

  Loop loop{LoopOptions{.log = no_log()}};
  Made* made = nullptr;
};

struct OneClient : OnLoop<Client> {
  static constexpr bool waits = false;  // For a connection that accepts another call.
  OneClient(const std::string& at, const PoolOptions& options) : address(at), client(loop, options.client) {
    made = &client;
    connect();
  }
  void connect() { EXPECT_OK(loop.run(client.connect(address))); }
  std::string address;
  Client client;
};
struct Pool : OnLoop<ClientPool> {
  static constexpr bool waits = true;
  Pool(const std::string& at, PoolOptions options) : pool(ClientPool::create(loop, at, std::move(options))) {
    made = pool.get();
  }
  void connect() {}
  std::shared_ptr<ClientPool> pool;
};
struct Cluster : OnLoop<ClusterClient> {
  static constexpr bool waits = true;
  Cluster(const std::string& at, PoolOptions options)
      : client(std::move(*ClusterClient::create(loop, "list:" + at, {.pool = std::move(options)}))) {
    made = client.get();
  }
  void connect() {}
  std::unique_ptr<ClusterClient> client;
};
struct Blocking {
  static constexpr bool waits = true;
  Blocking(const std::string& at, PoolOptions options) : client(at, with(std::move(options))) { connect(); }
  static BlockingOptions with(PoolOptions options) {
    BlockingOptions made;
    made.pool = std::move(options);
    made.background.loop.log = no_log();
    return made;
  }
  template <auto F>
  Result<Raw> call(const CallOptions& options, const Raw& request) {
    return client.call<F>(options, request);
  }
  Result<int> count(int items) {
    return client.run([items](Client& on) { return OnLoop<Client>::count_over(on, items); });
  }
  int together(int calls) {
    std::vector<StartedCall<&remote::echo>> started;
    for (int i = 0; i < calls; ++i) started.push_back(client.start<&remote::echo>(Raw{"hello"}));
    int succeeded = 0;
    for (auto& call : started) succeeded += call.get().has_value() ? 1 : 0;
    return succeeded;
  }
  void connect() { EXPECT_OK(client.connect()); }
  BlockingClient client;
};

template <class Case>
class Callers : public ::testing::Test {
 protected:
  using Protocol = std::tuple_element_t<0, Case>;
  using Kind = std::tuple_element_t<1, Case>;

  void SetUp() override { start(); }
  void start() {
    server = std::make_unique<Server>(ServerOptions{.listen = address, .loop = {.log = no_log()}});
    register_raw_service(*server);
    server->enable(grpc());
    server->enable(baidu_std());
    const Result<void> started = server->start();
    ASSERT_TRUE(started) << error_of(started);
  }
  Kind& caller() {
    if (kind == nullptr) {
      options.client.call_timeout = patience;
      kind = std::make_unique<Kind>(address, options);
    }
    return *kind;
  }

  const std::string address = "unix:@hawser-callers-" + std::to_string(getpid());
  PoolOptions options{.client = Protocol::client()};
  std::unique_ptr<Server> server;
  std::unique_ptr<Kind> kind;
};

using Cases =
    ::testing::Types<std::tuple<Native, OneClient>, std::tuple<Native, Pool>, std::tuple<Native, Blocking>,
                     std::tuple<Native, Cluster>, std::tuple<Grpc, OneClient>, std::tuple<Grpc, Pool>,
                     std::tuple<Grpc, Blocking>, std::tuple<Grpc, Cluster>, std::tuple<BaiduStd, OneClient>,
                     std::tuple<BaiduStd, Pool>, std::tuple<BaiduStd, Blocking>, std::tuple<BaiduStd, Cluster>>;
TYPED_TEST_SUITE(Callers, Cases);

TYPED_TEST(Callers, ReturnTheReply) {
  const auto reply = this->caller().template call<&remote::echo>({}, Raw{"hello"});
  ASSERT_TRUE(reply) << error_of(reply);
  EXPECT_EQ(reply->bytes, "hello");
}

TYPED_TEST(Callers, ReturnTheErrorOfTheHandler) {
  const auto reply = this->caller().template call<&remote::fail>({}, Raw{"09text"});
  EXPECT_ERROR(reply, application, "text");
  if (!reply) {
    EXPECT_EQ(reply.error().application_code, 9);
  }
}

TYPED_TEST(Callers, EndAtTheDeadline) {
  EXPECT_ERROR(this->caller().template call<&remote::sleep>({.timeout = 20ms}, Raw{}), deadline_exceeded, "");
}

TYPED_TEST(Callers, ReadAStream) {
  const Result<int> items = this->caller().count(20);
  ASSERT_TRUE(items) << error_of(items);
  EXPECT_EQ(*items, 20);
}

// Interceptors are those of a Client, whoever contains it.
TYPED_TEST(Callers, RunInterceptors) {
  std::atomic<int> calls{0};
  std::atomic<bool> named{false};
  this->options.client.interceptors.push_back(
      client_interceptor([&](OutgoingCall& call, Next next) -> Task<Result<void>> {
        ++calls;
        named = call.protocol() == TestFixture::Protocol::name;
        auto result = co_await next();
        co_return result;
      }));
  EXPECT_OK(this->caller().template call<&remote::echo>({}, Raw{}));
  EXPECT_EQ(calls.load(), 1);
  EXPECT_TRUE(named.load());
}

TYPED_TEST(Callers, ConnectToTheNextServer) {
  EXPECT_OK(this->caller().template call<&remote::echo>({}, Raw{}));
  this->server.reset();
  this->start();
  this->caller().connect();
  EXPECT_OK(this->caller().template call<&remote::echo>({}, Raw{}));
}

// The outcome belongs to the call that was awaited, of whatever caller.
template <class By>
Task<void> read_outcomes(By& by, bool has_status) {
  CallOptions options;
  options.metadata = {{"echo-text", "plain"}};
  auto good = co_await by.template call<&remote::echo>(options, Raw{"hello"}).with_outcome();
  REQUIRE_OK(good.result);
  EXPECT_EQ(good.outcome.status, has_status ? 0 : -1);
  EXPECT_EQ(std::ranges::count(good.outcome.metadata, options.metadata.front()), 1);
  auto failed = co_await by.template call<&remote::fail>(Raw{"09text"}).with_outcome();
  EXPECT_FALSE(failed.result);
  EXPECT_EQ(failed.outcome.status, has_status ? 9 : -1);
  auto streamed = co_await by.template open<&remote::count>(Raw{"0"});
  REQUIRE_OK(streamed);
  auto end = co_await streamed->finish_with_outcome();
  EXPECT_OK(end.result);
  EXPECT_EQ(end.outcome.status, has_status ? 0 : -1);
}

TYPED_TEST(Callers, ReturnTheOutcome) {
  using Protocol = TestFixture::Protocol;
  if constexpr (std::is_same_v<typename TestFixture::Kind, Blocking>) {
    EXPECT_OK(this->caller().client.run([](Client& client) -> Task<Result<void>> {
      co_await read_outcomes(client, std::is_same_v<Protocol, Grpc>);
      co_return Result<void>();
    }));
  } else {
    auto& by = this->caller();
    by.loop.run(read_outcomes(*by.made, std::is_same_v<Protocol, Grpc>));
  }
}

// A call that a connection does not accept waits for one that ends, unless the caller is a single connection.
TYPED_TEST(Callers, WaitForAPlace) {
  this->options.client.calls_in_flight_max = 5;
  this->options.connections_max = 1;
  EXPECT_EQ(this->caller().together(9), TestFixture::Kind::waits ? 9 : 5);
}

// How a cluster judges an endpoint whose handlers fail with a status.
EndpointState endpoint_after(const ClientOptions& protocol, const std::string& status) {
  const std::string address = "unix:@hawser-judged-" + std::to_string(getpid());
  Server server({.listen = address, .loop = {.log = no_log()}});
  register_raw_service(server);
  server.enable(grpc());
  const Result<void> started = server.start();
  EXPECT_TRUE(started) << error_of(started);
  Loop loop(LoopOptions{.log = no_log()});
  ClusterOptions options{
      .pool = {.client = protocol},
      .balancing = {.latency_decay = std::chrono::hours(1),
                    .pushback_latency = std::chrono::hours(1),
                    .breaker = {.base_time = std::chrono::hours(1), .time_max = std::chrono::hours(1)}}};
  options.pool.client.call_timeout = patience;
  auto client = ClusterClient::create(loop, "list:" + address, std::move(options));
  EXPECT_TRUE(client) << error_of(client);
  for (int i = 0; i < 5; ++i) {
    loop.run([](ClusterClient& by, const std::string& with) -> Task<void> {
      EXPECT_ERROR(co_await by.call<&remote::fail>(Raw{with}), application, "text");
    }(**client, status + "text"));
  }
  return (*client)->endpoints().at(0);
}

TEST(CallersOfGrpc, StatusesJudgeAnEndpoint) {
  constexpr auto zero = Duration::zero();
  EXPECT_GT(endpoint_after(grpc_client(), "14").breaker_open_for, zero) << "UNAVAILABLE is a failure";
  const EndpointState refuses = endpoint_after(grpc_client(), "08");
  EXPECT_EQ(refuses.breaker_open_for, zero);
  EXPECT_GT(*refuses.latency, std::chrono::minutes(10)) << "RESOURCE_EXHAUSTED is a refusal";
  EXPECT_EQ(endpoint_after(grpc_client(), "09").breaker_open_for, zero) << "FAILED_PRECONDITION is an answer";
  EXPECT_EQ(endpoint_after({}, "14").breaker_open_for, zero) << "a code of the application has no such meaning";
}

template <class Protocol>
class IdlePools : public Callers<std::tuple<Protocol, Pool>> {};
using Protocols = ::testing::Types<Native, Grpc, BaiduStd>;
TYPED_TEST_SUITE(IdlePools, Protocols);

TYPED_TEST(IdlePools, CloseTheirConnections) {
  this->options.idle_timeout = 10ms;
  Pool& by = this->caller();
  EXPECT_OK(by.template call<&remote::echo>({}, Raw{}));
  EXPECT_TRUE(by.loop.run(eventually(by.loop, [&] { return by.pool->connections() == 0; })));
}

}  // namespace hawser::callers
