#include "hawser/xds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "base/try.h"
#include "cluster/xds/test/xds_messages.h"
#include "hawser/cluster_client.h"
#include "hawser/grpc.h"
#include "hawser/hawser.h"
#include "protocol/grpc/own_method.h"
#include "tests/naming_fixture.h"
#include "tests/testing.h"

// Names of a control plane that is played over real connections.
namespace hawser {
namespace {

using namespace testing_tools;
using namespace cluster::played_xds;
using cluster::XdsKind;
using Message = protocol::grpc::ProtoBytes;

int served_here() { return 7; }

// A request that the control plane has received.
struct SeenRequest {
  std::string version;
  std::string type;
  std::string nonce;
  std::string refusal;
  std::vector<std::string> names;
  bool has_node = false;
};

SeenRequest read_request(std::string_view message) {
  SeenRequest seen;
  protocol::grpc::visit_fields(message, [&](const protocol::grpc::ProtoField& field) {
    switch (field.number) {
      case 1: seen.version = field.bytes; break;
      case 2: seen.has_node = true; break;
      case 3: seen.names.emplace_back(field.bytes); break;
      case 4: seen.type = field.bytes.substr(std::string_view("type.googleapis.com/").size()); break;
      case 5: seen.nonce = field.bytes; break;
      case 6: seen.refusal = *protocol::grpc::string_field(field.bytes, 2); break;
      default: break;
    }
  });
  return seen;
}

// Answers the first request of a stream for each kind, and those for other names, with the resource that it has. Sends
// what was refused again.
class PlayedControlPlane {
 public:
  void set(XdsKind kind, std::string resource) {
    const std::scoped_lock lock(mutex_);
    resources_[static_cast<std::size_t>(kind)] = std::move(resource);
  }
  // Each answer of the kind has this one, too.
  void add(XdsKind kind, std::string resource) {
    const std::scoped_lock lock(mutex_);
    added_[static_cast<std::size_t>(kind)].push_back(std::move(resource));
  }
  // Streams that begin from now on end behind this number of answers. 0: they do not end.
  void end_streams_behind(std::size_t answers) {
    const std::scoped_lock lock(mutex_);
    answers_max_ = answers;
  }
  // As set(), for streams that do not end.
  void set_for_good(XdsKind kind, std::string resource) {
    const std::scoped_lock lock(mutex_);
    resources_[static_cast<std::size_t>(kind)] = std::move(resource);
    answers_max_ = 0;
  }
  // As set(), and sends it on the streams that are open.
  void push(XdsKind kind, std::string resource) {
    const std::scoped_lock lock(mutex_);
    resources_[static_cast<std::size_t>(kind)] = resource;
    pushed_.emplace_back(kind, std::move(resource));
  }
  std::vector<SeenRequest> seen() const {
    const std::scoped_lock lock(mutex_);
    return seen_;
  }
  std::size_t streams() const {
    const std::scoped_lock lock(mutex_);
    return streams_;
  }

  Task<Result<void>> stream(Context&, Reader<Message> in, Writer<Message> out) {
    const std::size_t answers_max = begin_stream();
    Scope pushing;
    pushing.spawn(push_all(out));
    std::vector<std::vector<std::string>> known(cluster::xds_kinds);  // The names that were asked for.
    std::size_t answers = 0;
    for (;;) {
      CO_TRY(const std::optional<Message> message, co_await in.next());
      if (!message) co_return Result<void>();
      const std::optional<std::string> answer = answer_to(read_request(message->bytes), known);
      if (!answer) continue;
      CO_TRY(co_await out.write(Message{*answer}));
      if (++answers == answers_max) co_return fail(Error::of_call(ErrorCode::unavailable, "played"));
    }
  }

 private:
  // Sends what is pushed from now on.
  Task<void> push_all(Writer<Message> out) {
    std::size_t next = pushes();
    for (;; co_await Loop::current()->sleep(1ms)) {
      for (; next < pushes(); ++next) {
        if (!co_await out.write(Message{pushed(next)})) co_return;
      }
    }
  }
  std::size_t pushes() const {
    const std::scoped_lock lock(mutex_);
    return pushed_.size();
  }
  std::string pushed(std::size_t index) {
    const std::scoped_lock lock(mutex_);
    const std::string number = std::to_string(++nonces_);
    return response(pushed_[index].first, "v" + number, "n" + number, {pushed_[index].second});
  }
  // Returns after how many answers the stream ends.
  std::size_t begin_stream() {
    const std::scoped_lock lock(mutex_);
    ++streams_;
    return answers_max_;
  }
  std::optional<std::string> answer_to(const SeenRequest& request, std::vector<std::vector<std::string>>& known) {
    const std::scoped_lock lock(mutex_);
    if (seen_.size() < 1000) seen_.push_back(request);
    for (std::size_t kind = 0; kind < cluster::xds_kinds; ++kind) {
      if (request.type != cluster::xds_types[kind] || request.names.empty()) continue;
      if (resources_[kind].empty()) return std::nullopt;
      if (known[kind] == request.names && request.refusal.empty()) return std::nullopt;
      known[kind] = request.names;
      const std::string number = std::to_string(++nonces_);
      std::vector<std::string> all = added_[kind];
      all.push_back(resources_[kind]);
      return response(static_cast<XdsKind>(kind), "v" + number, "n" + number, all);
    }
    return std::nullopt;
  }

  mutable std::mutex mutex_;
  std::vector<std::string> resources_ = std::vector<std::string>(cluster::xds_kinds);
  std::vector<std::vector<std::string>> added_ = std::vector<std::vector<std::string>>(cluster::xds_kinds);
  std::vector<std::pair<XdsKind, std::string>> pushed_;
  std::vector<SeenRequest> seen_;
  std::size_t streams_ = 0;
  std::size_t nonces_ = 0;
  std::size_t answers_max_ = 0;
};

class XdsNames : public NamingFixture {
 protected:
  void SetUp() override {
    plane->set(XdsKind::listener, listener_by_rds("svc", "routes"));
    plane->set(XdsKind::route, routes_to("routes", "blue"));
    plane->set(XdsKind::cluster, eds_cluster("blue"));
    plane->set(XdsKind::endpoints, assignment("blue", {locality("z", 1, 0, {{"10.0.0.1", 80}})}));
    options.retry_interval = 20ms;
    options.retry_max = 100ms;
    start_plane("127.0.0.1:0");
  }

  void start_plane(const std::string& address) {
    ServerOptions server_options;
    server_options.listen = address;
    server_options.loop.log = LogSink();
    server = std::make_unique<Server>(server_options);
    server->enable(grpc());
    protocol::grpc::add_own_method<&PlayedControlPlane::stream>(
        *server, plane, "envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources");
    const auto started = server->start();
    ASSERT_TRUE(started) << error_of(started);
    options.bootstrap = R"({"xds_servers":[{"server_uri":")" + server->address() +
                        R"(","channel_creds":[{"type":"insecure"}]}],"node":{"id":"test"}})";
  }
  std::unique_ptr<Naming> open_name() {
    auto naming = Naming::open(loop, "xds:///svc", {xds_naming(options)});
    EXPECT_TRUE(naming) << error_of(naming);
    return std::move(*naming);
  }

  const std::shared_ptr<PlayedControlPlane> plane = std::make_shared<PlayedControlPlane>();
  std::unique_ptr<Server> server;
  XdsOptions options;
};

TEST_F(XdsNames, AListArrivesAndEachAnswerIsAccepted) {
  const auto naming = open_name();
  ASSERT_TRUE(until([&] { return naming->state().version == 1; }));
  EXPECT_EQ(addresses_of(*naming), "10.0.0.1:80");
  ASSERT_TRUE(until([&] { return plane->seen().size() == 8; })) << "four requests, four replies";
  std::size_t with_node = 0;
  for (const SeenRequest& one : plane->seen()) {
    EXPECT_EQ(one.refusal, "");
    EXPECT_EQ(one.version.empty(), one.nonce.empty());
    with_node += one.has_node ? 1 : 0;
  }
  EXPECT_EQ(with_node, 1U);
  EXPECT_TRUE(plane->seen().front().has_node);
  EXPECT_FALSE(naming->state().error);
}

TEST_F(XdsNames, ALongAnswerIsReadInStepsAndAccepted) {
  std::vector<PlayedEndpoint> many;
  for (std::uint64_t port = 1; port <= 3000; ++port) many.push_back({"10.0.0.1", port});
  plane->set(XdsKind::endpoints, assignment("blue", {locality("z", 1, 0, many)}));
  const auto naming = open_name();
  ASSERT_TRUE(until([&] { return naming->state().endpoints.size() == many.size(); }));
  ASSERT_TRUE(until([&] { return plane->seen().size() == 8; })) << "four requests, four replies";
  EXPECT_EQ(plane->seen().back().refusal, "");
}

TEST_F(XdsNames, ACallReachesAServerOfTheList) {
  ServerOptions backend_options;
  backend_options.loop.log = LogSink();
  Server backend(backend_options);
  backend.register_handler<served_here>();
  ASSERT_TRUE(backend.start());
  const std::string address = backend.address();
  const std::uint64_t port = std::stoull(address.substr(address.rfind(':') + 1));
  plane->set(XdsKind::endpoints, assignment("blue", {locality("", 1, 0, {{"127.0.0.1", port}})}));
  ClusterOptions calling;
  calling.naming = {xds_naming(options)};
  const auto client = ClusterClient::create(loop, "xds:///svc", calling);
  ASSERT_TRUE(client) << error_of(client);
  const auto reply = loop.run([](ClusterClient& by) -> Task<Result<int>> {
    co_return co_await by.call<served_here>({.timeout = patience});
  }(**client));
  ASSERT_TRUE(reply) << error_of(reply);
  EXPECT_EQ(*reply, 7);
}

// Servers behind the name of a control plane, and a client.
class XdsPolicies : public XdsNames {
 protected:
  static constexpr std::size_t count = 3;
  // A server that counts what it executes.
  struct Counting {
    std::atomic<int> calls = 0;
    std::atomic<bool> fails = false;
    Result<int> number(int given) {
      ++calls;
      if (fails) return fail(ErrorCode::overloaded, "played");
      return given;
    }
    Task<int> number_late(Context& context, int given) {
      ++calls;
      co_await context.loop().sleep(given < 0 ? 60s : 0s);
      co_return given;
    }
  };

  void SetUp() override {
    XdsNames::SetUp();
    std::vector<PlayedEndpoint> places;
    for (std::size_t i = 0; i < count; ++i) {
      ServerOptions with;
      with.loop.log = LogSink();
      backends.push_back(std::make_unique<Server>(with));
      backends.back()->register_handler<&Counting::number>(&counting[i]);
      backends.back()->register_handler<&Counting::number_late>(&counting[i]);
      ASSERT_TRUE(backends.back()->start());
      const std::string address = backends.back()->address();
      places.push_back({"127.0.0.1", std::stoull(address.substr(address.rfind(':') + 1))});
    }
    list = assignment("blue", {locality("", 1, 0, places)});
    plane->set(XdsKind::endpoints, list);
  }
  void open_client() {
    ClusterOptions with;
    with.naming = {xds_naming(options)};
    with.retry.attempts_max = 1;
    auto made = ClusterClient::create(loop, "xds:///svc", with);
    ASSERT_TRUE(made) << error_of(made);
    client = std::move(*made);
    // Each endpoint has its connection behind it.
    ASSERT_TRUE(call_until(
        [&](const auto&) { return std::ranges::count(client->endpoints(), "ready", &EndpointState::reach) == count; }));
    for (Counting& one : counting) one.calls = 0;
  }
  Result<int> call(CallOptions with = {}) {
    if (!with.timeout) with.timeout = patience;
    return loop.run([](ClusterClient& by, CallOptions how) -> Task<Result<int>> {
      co_return co_await by.call<&Counting::number>(how, 1);
    }(*client, std::move(with)));
  }
  // Makes calls until one of them fulfils the condition.
  template <class Condition>
  bool call_until(Condition condition) {
    for (const Time end = loop.now() + patience; loop.now() < end;) {
      if (condition(call())) return true;
      loop.run([](Loop& on) -> Task<void> { co_await on.sleep(1ms); }(loop));  // A dropped call does not run the loop.
    }
    return false;
  }
  std::vector<int> calls() const {
    std::vector<int> all;
    for (const Counting& one : counting) all.push_back(one.calls);
    return all;
  }
  static std::string blue(std::string_view fields) { return std::string(eds_cluster("blue")) + std::string(fields); }
  static std::string routes_with(std::string_view action) {
    const std::string whole = std::string(Fields().bytes(1, "blue")) + std::string(action);
    const std::string route = Fields().bytes(1, Fields().bytes(1, "")).bytes(2, whole);
    return route_configuration("routes", {virtual_host("*", {route})});
  }

  std::array<Counting, count> counting;
  std::vector<std::unique_ptr<Server>> backends;
  std::string list;
  std::unique_ptr<ClusterClient> client;
};

TEST_F(XdsPolicies, RoundRobinIsInTurn) {
  ASSERT_NO_FATAL_FAILURE(open_client());
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(call());
  EXPECT_EQ(calls(), (std::vector<int>{10, 10, 10}));
}

// The first server is the cluster green, for calls with the header "canary"; the others are blue.
struct XdsCanary : XdsPolicies {
  void SetUp() override {
    XdsPolicies::SetUp();
    plane->set(XdsKind::endpoints, blue_list(2));
    plane->add(XdsKind::endpoints, assignment("green", {locality("", 1, 0, {place(0)})}));
    plane->add(XdsKind::cluster, eds_cluster("green"));
    plane->set(XdsKind::route, split);
    ClusterOptions with;
    with.naming = {xds_naming(options)};
    auto made = ClusterClient::create(loop, "xds:///svc", with);
    ASSERT_TRUE(made) << error_of(made);
    client = std::move(*made);
  }
  PlayedEndpoint place(std::size_t i) const {
    const std::string address = backends[i]->address();
    return {"127.0.0.1", std::stoull(address.substr(address.rfind(':') + 1))};
  }
  std::string blue_list(std::size_t servers) const {
    std::vector<PlayedEndpoint> places;
    for (std::size_t i = 1; i <= servers; ++i) places.push_back(place(i));
    return assignment("blue", {locality("", 1, 0, places)});
  }
  void make_calls(std::string canary) {
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(call({.metadata = {{"canary", canary}}}));
  }

  const std::string split = [] {
    const std::string canary = Fields().bytes(1, "").bytes(6, Fields().bytes(1, "canary").bytes(4, "yes"));
    return route_configuration("routes", {virtual_host("*", {route_to("green", canary), route_to("blue")})});
  }();
};

TEST_F(XdsCanary, RoutesLeadToSeveralClusters) {
  make_calls("yes");
  EXPECT_EQ(calls(), (std::vector<int>{10, 0, 0}));
  make_calls("no");
  EXPECT_EQ(counting[0].calls, 10);
  EXPECT_EQ(counting[1].calls + counting[2].calls, 10);
  EXPECT_EQ(client->endpoints().size(), 3U);
  // The canary has ended: the routes lead to blue alone.
  plane->push(XdsKind::route, routes_to("routes", "blue"));
  EXPECT_TRUE(call_until([&](const auto&) { return client->endpoints().size() == 2; }));
  const int before = counting[0].calls;
  make_calls("yes");
  EXPECT_EQ(counting[0].calls, before);
}

// The routes become others and the same again before they are reported, and the main cluster is another one then.
TEST_F(XdsCanary, RoutesThatReturnLeadToTheSameServers) {
  make_calls("yes");
  plane->push(XdsKind::endpoints, blue_list(2));  // The pushes behind it are reported together.
  plane->push(XdsKind::route, routes_to("routes", "blue"));
  plane->push(XdsKind::route, split);
  plane->push(XdsKind::endpoints, blue_list(1));
  EXPECT_TRUE(call_until([&](const auto&) {
    const std::vector<EndpointState> all = client->endpoints();
    return all.size() == 2 && std::ranges::none_of(all, [&](const EndpointState& one) {
             return one.endpoint.address == backends[2]->address();
           });
  }));
  for (Counting& one : counting) one.calls = 0;
  make_calls("yes");
  make_calls("no");
  EXPECT_EQ(calls(), (std::vector<int>{10, 10, 0}));
}

TEST_F(XdsPolicies, ARingKeepsAKeyAtItsServer) {
  plane->set(XdsKind::cluster, blue(Fields().number(6, 2)));
  const std::string header = Fields().bytes(1, Fields().bytes(1, "user"));
  plane->set(XdsKind::route, routes_with(Fields().bytes(15, header)));
  ASSERT_NO_FATAL_FAILURE(open_client());
  std::size_t used = 0;
  for (int user = 0; user < 200; ++user) {
    for (Counting& one : counting) one.calls = 0;
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(call({.metadata = {{"user", std::to_string(user)}}}));
    const std::vector<int> all = calls();
    EXPECT_EQ(std::ranges::count(all, 2), 1) << "one server has all calls of a user";
    used |= std::size_t{1} << (std::ranges::find(all, 2) - all.begin());
  }
  EXPECT_EQ(used, 7U) << "each server has users";
}

TEST_F(XdsPolicies, RetriesAreThoseOfTheRoute) {
  const std::string pauses = Fields().bytes(1, duration(1ms));
  const std::string policy = Fields().bytes(1, "resource-exhausted").bytes(2, wrapped(2)).bytes(8, pauses);
  plane->set(XdsKind::route, routes_with(Fields().bytes(9, policy)));
  ASSERT_NO_FATAL_FAILURE(open_client());
  for (Counting& one : counting) one.fails = true;
  const Result<int> reply = call({.idempotent = true});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::overloaded);
  EXPECT_EQ(calls(), (std::vector<int>{1, 1, 1})) << "the first attempt and two retries, in turn";
}

TEST_F(XdsPolicies, CallsEndWithTheTimeOfTheRoute) {
  plane->set(XdsKind::route, routes_with(Fields().bytes(36, Fields().bytes(1, duration(500ms)))));
  ASSERT_NO_FATAL_FAILURE(open_client());
  const Result<int> reply = loop.run([](ClusterClient& by) -> Task<Result<int>> {
    co_return co_await by.call<&Counting::number_late>({.timeout = patience}, -1);
  }(*client));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::deadline_exceeded);
}

TEST_F(XdsPolicies, NoCallBeginsBeyondTheLimitOfTheCluster) {
  plane->set(XdsKind::cluster, blue(Fields().bytes(10, Fields().bytes(1, Fields().bytes(4, wrapped(2))))));
  ASSERT_NO_FATAL_FAILURE(open_client());
  loop.run([](ClusterClient& by) -> Task<void> {
    Scope scope;
    for (int i = 0; i < 2; ++i) {
      scope.spawn([](ClusterClient& of) -> Task<void> {
        static_cast<void>(co_await of.call<&Counting::number_late>({.timeout = 60s}, -1));
      }(by));
    }
    const Result<int> third = co_await by.call<&Counting::number>({.timeout = patience}, 1);
    EXPECT_FALSE(third);
    EXPECT_TRUE(error_of(third).contains("as many calls are in flight as the source of the name permits"));
  }(*client));
  EXPECT_TRUE(call()) << "the others are cancelled";
}

TEST_F(XdsPolicies, AllCallsAreDroppedUntilTheControlPlaneEndsIt) {
  ASSERT_NO_FATAL_FAILURE(open_client());
  EXPECT_TRUE(call());
  const std::string all = Fields().bytes(2, Fields().bytes(2, Fields().number(1, 100)));
  plane->push(XdsKind::endpoints, list + std::string(Fields().bytes(4, all)));
  EXPECT_TRUE(call_until([](const auto& reply) { return error_of(reply).contains("a part of the calls is dropped"); }));
  plane->push(XdsKind::endpoints, list);
  EXPECT_TRUE(call_until([](const auto& reply) { return reply.has_value(); }));
}

TEST_F(XdsPolicies, ABalancingThatIsNotSupportedIsRefused) {
  plane->set(XdsKind::cluster, blue(Fields().number(6, 6)));
  const auto naming = open_name();
  EXPECT_TRUE(fails_with(*naming, "cluster 'blue' was refused: lb_policy 6 is not supported"));
  options.policies = false;
  const auto other = open_name();
  EXPECT_TRUE(until([&] { return other->state().version == 1; }));
  EXPECT_EQ(other->state().policy, nullptr);
}

// A control plane that changes the cluster and the list at full speed. Each change has its answer, the name reports
// at most every 0.1 s, and the last one counts.
TEST_F(XdsPolicies, AFloodOfChangesIsFollowed) {
  const auto naming = open_name();
  ASSERT_TRUE(until([&] { return naming->state().version == 1; }));
  const auto began = loop.now();
  for (std::uint64_t i = 1; i <= 500; ++i) {
    plane->push(XdsKind::cluster, blue(Fields().number(6, i % 2 == 0 ? 0 : 1)));
    plane->push(XdsKind::endpoints, assignment("blue", {locality("", 1, 0, {{"10.0.0.1", i}})}));
  }
  ASSERT_TRUE(until([&] { return addresses_of(*naming) == "10.0.0.1:500"; }));
  EXPECT_EQ(naming->state().policy->balancing, Balancing::weighted_round_robin);
  EXPECT_LE(naming->state().version, 3 + (loop.now() - began) / 100ms);
  EXPECT_FALSE(naming->state().error);
}

TEST_F(XdsNames, ARefusalReachesTheControlPlaneAndTheListStays) {
  plane->end_streams_behind(4);
  const auto naming = open_name();
  ASSERT_TRUE(until([&] { return naming->state().version == 1; }));
  plane->set_for_good(XdsKind::cluster, Fields().bytes(1, "blue").number(2, 1));
  ASSERT_TRUE(fails_with(*naming, "cluster 'blue' was refused: the type of the cluster is not EDS"));
  EXPECT_EQ(addresses_of(*naming), "10.0.0.1:80");
  EXPECT_TRUE(until([&] {
    return std::ranges::any_of(plane->seen(), [](const SeenRequest& one) {
      return one.refusal.contains("not EDS") && one.version.empty() && !one.nonce.empty();
    });
  }));
}

TEST_F(XdsNames, AnAnswerThatIsRepeatedIsRefusedSeldom) {
  plane->set(XdsKind::cluster, Fields().bytes(1, "blue").number(2, 1));
  const Time began = loop.now();
  const auto naming = open_name();
  const auto refusals = [&] {
    return std::ranges::count_if(plane->seen(), [](const auto& one) { return !one.refusal.empty(); });
  };
  EXPECT_TRUE(until([&] { return refusals() >= 5; }));
  EXPECT_LE(refusals(), (loop.now() - began) / options.retry_interval + 1);
}

TEST_F(XdsNames, TheListSurvivesTheControlPlane) {
  const TemporaryFolder folder;
  const std::string address = "unix:" + (folder.path() / "plane").string();
  server.reset();
  start_plane(address);
  const auto naming = open_name();
  ASSERT_TRUE(until([&] { return naming->state().version == 1; }));
  server.reset();
  ASSERT_TRUE(fails_with(*naming, "the control plane at "));
  EXPECT_EQ(addresses_of(*naming), "10.0.0.1:80");
  plane->set(XdsKind::endpoints, assignment("blue", {locality("z", 1, 0, {{"10.0.0.2", 80}})}));
  start_plane(address);
  EXPECT_TRUE(until([&] { return addresses_of(*naming) == "10.0.0.2:80" && !naming->state().error; }));
}

TEST_F(XdsNames, StreamsThatEndAtOnceAreReplaced) {
  plane->end_streams_behind(4);
  const auto naming = open_name();
  EXPECT_TRUE(until([&] { return plane->streams() >= 5 && naming->state().version == 1; }));
  plane->end_streams_behind(1);
  const std::size_t before = plane->streams();
  EXPECT_TRUE(until([&] { return plane->streams() >= before + 5; }));
  EXPECT_EQ(addresses_of(*naming), "10.0.0.1:80");
  plane->end_streams_behind(0);
  EXPECT_TRUE(until([&] { return !naming->state().error; }));
}

TEST_F(XdsNames, AMissingResourceIsNamed) {
  plane->set(XdsKind::endpoints, "");
  options.absent_timeout = 20ms;
  const auto naming = open_name();
  EXPECT_TRUE(fails_with(*naming, "load assignment 'blue' does not exist: it was not sent within 20 ms"));
  EXPECT_EQ(naming->state().version, 0U);
}

TEST_F(XdsNames, AHugeAnswerEndsTheStreamAndTheListStays) {
  options.message_bytes_max = 4096;
  plane->end_streams_behind(4);
  const auto naming = open_name();
  ASSERT_TRUE(until([&] { return naming->state().version == 1; }));
  plane->set_for_good(XdsKind::endpoints, assignment("blue", {locality("z", 1, 0, {{std::string(8192, 'x'), 80}})}));
  EXPECT_TRUE(fails_with(*naming, "4096"));
  EXPECT_EQ(addresses_of(*naming), "10.0.0.1:80");
}

TEST_F(XdsNames, AnotherServerIsUsedIfTheFirstDoesNotAnswer) {
  ServerOptions other_options;
  other_options.loop.log = LogSink();
  Server other(other_options);
  other.enable(grpc());  // It has no such method.
  ASSERT_TRUE(other.start());
  const auto entry = [](const Server& one) {
    return R"({"server_uri":")" + one.address() + R"(","channel_creds":[{"type":"insecure"}]})";
  };
  options.bootstrap = R"({"xds_servers":[)" + entry(other) + "," + entry(*server) + "]}";
  const auto naming = open_name();
  EXPECT_TRUE(until([&] { return naming->state().version == 1; }));
}

TEST_F(XdsNames, TheNameAndTheBootstrapAreChecked) {
  const auto why = [&](std::string_view name, const XdsOptions& with) {
    const auto naming = Naming::open(loop, name, {xds_naming(with)});
    return naming ? "" : naming.error().text;
  };
  EXPECT_TRUE(why("xds://authority/svc", options).contains("write xds:///name, with three slashes"));
  EXPECT_TRUE(why("xds:///", options).contains("its name has 0 bytes, and must have from 1 to "));
  EXPECT_EQ(why("xds:svc", options), "");
  options.bootstrap = "{}";
  EXPECT_TRUE(why("xds:///svc", options).contains("xds_servers must be"));
  XdsOptions wrong = options;
  wrong.absent_timeout = 0ms;
  EXPECT_TRUE(why("xds:///svc", wrong).contains("must be from 1 ms to 1 h"));
}

}  // namespace
}  // namespace hawser
