#include "cluster/xds/xds_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cluster/xds/test/xds_messages.h"

namespace hawser::cluster {
namespace {

using namespace std::chrono_literals;
using namespace played_xds;
using News = XdsState::News;

constexpr Time start = Time(1h);
constexpr Duration absent = 15s;

XdsState new_state() { return {"svc", "svc", "node", absent}; }

// A request for one resource, or for none.
struct ExpectedRequest {
  XdsKind kind = XdsKind::listener;
  std::string_view version = {};
  std::string_view node = {};
  std::string_view name = {};
  std::string_view nonce = {};
  std::string_view refusal = {};
};
std::string expected(const ExpectedRequest& one) {
  const std::array<std::string_view, 1> names = {one.name};
  return discovery_request({.kind = one.kind,
                            .version = one.version,
                            .node = one.node,
                            .names = std::span(names).first(one.name.empty() ? 0 : 1),
                            .nonce = one.nonce,
                            .refusal = one.refusal});
}

// The four answers that lead to one list.
std::array<std::string, xds_kinds> whole_chain(const std::string& version) {
  return {response(XdsKind::listener, version, "l" + version, {listener_by_rds("svc", "routes")}),
          response(XdsKind::route, version, "r" + version, {routes_to("routes", "blue")}),
          response(XdsKind::cluster, version, "c" + version, {eds_cluster("blue", "blue-eds")}),
          response(XdsKind::endpoints, version, "e" + version,
                   {assignment("blue-eds", {locality("z", 1, 0, {{"10.0.0.1", 80}, {"10.0.0.2", 80}})})})};
}

std::vector<std::string> addresses_in(const XdsState& state) {
  std::vector<std::string> addresses;
  if (!state.known()) return addresses;
  const auto cluster = state.cluster(state.main());
  if (!cluster) return addresses;
  for (const Endpoint& one : *cluster->endpoints) addresses.push_back(one.address);
  return addresses;
}

// Gives the answers in order, and expects that each is accepted.
void accept(XdsState& state, std::span<const std::string> answers, Time now = start) {
  for (const std::string& answer : answers) {
    const auto step = state.on_response(answer, now);
    ASSERT_TRUE(step) << step.error().text;
    EXPECT_EQ(state.problem(), "");
  }
}

TEST(XdsState, TheRequestsAreKnownToTheByte) {
  XdsState state = new_state();
  const std::vector<std::string> first = state.begin(start);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0], "\x12\x04node\x1a\x03svc\x22\x35type.googleapis.com/envoy.config.listener.v3.Listener");
  const auto answers = whole_chain("1");
  auto step = state.on_response(answers[0], start);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->requests, (std::vector<std::string>{
                                "\x0a\x01"
                                "1\x1a\x03svc\x22\x35type.googleapis.com/envoy.config.listener.v3.Listener\x2a\x02l1",
                                "\x1a\x06routes\x22\x3ctype.googleapis.com/envoy.config.route.v3.RouteConfiguration"}));
  step = state.on_response(answers[1], start);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->requests, (std::vector<std::string>{
                                expected({.kind = XdsKind::route, .version = "1", .name = "routes", .nonce = "r1"}),
                                expected({.kind = XdsKind::cluster, .name = "blue"})}));
  step = state.on_response(answers[2], start);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->requests, (std::vector<std::string>{
                                expected({.kind = XdsKind::cluster, .version = "1", .name = "blue", .nonce = "c1"}),
                                expected({.kind = XdsKind::endpoints, .name = "blue-eds"})}));
  EXPECT_FALSE(state.known());
  step = state.on_response(answers[3], start);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->requests, (std::vector<std::string>{expected(
                                {.kind = XdsKind::endpoints, .version = "1", .name = "blue-eds", .nonce = "e1"})}));
  EXPECT_EQ(step->news, News::changed);
  EXPECT_EQ(addresses_in(state), (std::vector<std::string>{"10.0.0.1:80", "10.0.0.2:80"}));
  EXPECT_EQ(state.next_time(), Time::max());
}

std::string long_answer(const std::string& version, const std::string& host, std::size_t count,
                        std::uint64_t priority = 0) {
  std::vector<PlayedEndpoint> endpoints;
  for (std::size_t i = 0; i < count; ++i) endpoints.push_back({host + std::to_string(i), 80});
  return response(XdsKind::endpoints, version, "e" + version,
                  {assignment("blue-eds", {locality("z", 1, priority, endpoints)})});
}

// A long answer is read in steps. Nothing changes before its end, and its stream may end before that.
TEST(XdsState, ALongAnswerIsReadInSteps) {
  constexpr std::size_t count = 2000;
  XdsState state = new_state();
  state.begin(start);
  accept(state, whole_chain("1"));
  const std::string good = long_answer("2", "host", count);
  ASSERT_TRUE(state.begin_response(good));
  std::size_t steps = 1;
  for (; state.read_response(); ++steps) EXPECT_EQ(addresses_in(state).size(), 2U);
  EXPECT_GE(steps, 2 * count / AssignmentReader::endpoints_of_step) << "fields are read, then endpoints are placed";
  EXPECT_EQ(addresses_in(state).size(), 2U);
  EXPECT_EQ(state.end_response(start).news, News::changed);
  EXPECT_EQ(addresses_in(state).size(), count);
  EXPECT_EQ(addresses_in(state).back(), "host1999:80");

  const std::string bad = long_answer("3", "bad", count, 1);
  ASSERT_TRUE(state.begin_response(bad));
  while (state.read_response()) EXPECT_EQ(state.problem(), "");
  EXPECT_TRUE(state.end_response(start).refused);
  EXPECT_TRUE(state.problem().contains("a priority is missing")) << state.problem();
  accept(state, std::vector{good});

  ASSERT_TRUE(state.begin_response(good));
  EXPECT_TRUE(state.read_response());
  EXPECT_FALSE(state.begin(start).empty()) << "another stream";
  accept(state, whole_chain("4"));
  EXPECT_EQ(addresses_in(state), (std::vector<std::string>{"10.0.0.1:80", "10.0.0.2:80"}));
}

TEST(XdsState, ARefusalHasTheVersionBeforeAndTheReason) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, whole_chain("1"));
  const std::string bad =
      response(XdsKind::endpoints, "2", "e2", {assignment("blue-eds", {locality("z", 1, 1, {{"10.0.0.9", 80}})})});
  for (int i = 0; i < 3; ++i) {
    const auto step = state.on_response(bad, start);
    ASSERT_TRUE(step);
    EXPECT_EQ(step->news, News::none);
    const std::string why =
        "load assignment 'blue-eds' was refused: a priority is missing: they must be 0, 1, 2 and so on";
    EXPECT_EQ(state.problem(), why);
    EXPECT_EQ(step->requests,
              (std::vector<std::string>{expected(
                  {.kind = XdsKind::endpoints, .version = "1", .name = "blue-eds", .nonce = "e2", .refusal = why})}));
    EXPECT_EQ(addresses_in(state), (std::vector<std::string>{"10.0.0.1:80", "10.0.0.2:80"})) << "the last good list";
  }
  accept(state, std::vector{whole_chain("3")[3]});
}

// Whichever answer comes first on a stream, the chain is complete in the end.
TEST(XdsState, AnswersMayComeInEachOrder) {
  std::array<std::size_t, xds_kinds> order = {0, 1, 2, 3};
  do {
    XdsState state = new_state();
    state.begin(start);
    const auto answers = whole_chain("1");
    for (int round = 0; round < 4; ++round) {
      for (const std::size_t index : order) {
        const auto step = state.on_response(answers[index], start);
        ASSERT_TRUE(step);
        EXPECT_FALSE(step->requests.empty()) << "each answer has a reply";
      }
    }
    EXPECT_EQ(state.problem(), "");
    ASSERT_TRUE(state.known());
    EXPECT_EQ(addresses_in(state).size(), 2U);
  } while (std::ranges::next_permutation(order).found);
}

TEST(XdsState, ANewStreamAsksForAllAndKeepsTheList) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, whole_chain("1"));
  EXPECT_EQ(state.begin(start),
            (std::vector<std::string>{expected({.kind = XdsKind::listener, .node = "node", .name = "svc"}),
                                      expected({.kind = XdsKind::route, .name = "routes"}),
                                      expected({.kind = XdsKind::cluster, .name = "blue"}),
                                      expected({.kind = XdsKind::endpoints, .name = "blue-eds"})}));
  EXPECT_EQ(addresses_in(state).size(), 2U);
  // The list is confirmed when all of it has arrived again.
  const auto answers = whole_chain("1");
  EXPECT_EQ(state.on_response(answers[3], start)->news, News::changed);
  EXPECT_EQ(state.on_response(answers[0], start)->news, News::none);
  EXPECT_EQ(state.on_response(answers[1], start)->news, News::none);
  EXPECT_EQ(state.on_response(answers[2], start)->news, News::confirmed);
}

TEST(XdsState, AnotherClusterTakesThePlaceWhenItsEndpointsAreKnown) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, whole_chain("1"));
  auto step = state.on_response(response(XdsKind::route, "2", "r2", {routes_to("routes", "green")}), start);
  ASSERT_TRUE(step);
  ASSERT_EQ(step->requests.size(), 2U);
  EXPECT_EQ(step->requests[1], expected({.kind = XdsKind::cluster, .version = "1", .name = "green", .nonce = "c1"}));
  // An answer to the earlier request says nothing about the new name.
  accept(state, std::vector{response(XdsKind::cluster, "2", "c2", {eds_cluster("blue", "blue-eds")})});
  step = state.on_response(response(XdsKind::cluster, "3", "c3", {eds_cluster("green")}), start);
  ASSERT_TRUE(step);
  ASSERT_EQ(step->requests.size(), 2U);
  EXPECT_EQ(step->requests[1], expected({.kind = XdsKind::endpoints, .version = "1", .name = "green", .nonce = "e1"}));
  EXPECT_EQ(addresses_in(state).size(), 2U) << "of the old cluster";
  step = state.on_response(
      response(XdsKind::endpoints, "3", "e3", {assignment("green", {locality("z", 1, 0, {{"::1", 81}})})}), start);
  EXPECT_EQ(step->news, News::changed);
  EXPECT_EQ(addresses_in(state), std::vector<std::string>{"[::1]:81"});
}

TEST(XdsState, ARouteWithinTheListenerEndsTheOtherRequest) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, whole_chain("1"));
  const auto step = state.on_response(
      response(XdsKind::listener, "2", "l2", {listener_inline("svc", routes_to("", "green"))}), start);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->requests, (std::vector<std::string>{
                                expected({.kind = XdsKind::listener, .version = "2", .name = "svc", .nonce = "l2"}),
                                expected({.kind = XdsKind::route, .version = "1", .nonce = "r1"}),
                                expected({.kind = XdsKind::cluster, .version = "1", .name = "green", .nonce = "c1"})}));
}

TEST(XdsState, AResourceThatIsNotSentDoesNotExist) {
  XdsState state = new_state();
  state.begin(start);
  EXPECT_EQ(state.next_time(), start + absent);
  state.on_time(start + absent - 1ms);
  EXPECT_EQ(state.problem(), "");
  state.on_time(start + absent);
  EXPECT_EQ(state.problem(), "listener 'svc' does not exist: it was not sent within 15000 ms");
  EXPECT_EQ(state.next_time(), Time::max());
  accept(state, whole_chain("1"), start + absent + 1s);
  EXPECT_TRUE(state.known());
}

TEST(XdsState, AnAnswerWithoutAKnownListenerRemovesItAndKeepsTheList) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, whole_chain("1"));
  auto step = state.on_response(response(XdsKind::listener, "2", "l2", {}), start);
  ASSERT_TRUE(step);
  EXPECT_EQ(state.problem(), "listener 'svc' does not exist");
  EXPECT_EQ(
      step->requests,
      (std::vector<std::string>{expected({.kind = XdsKind::listener, .version = "2", .name = "svc", .nonce = "l2"})}));
  EXPECT_EQ(addresses_in(state).size(), 2U);
  // Answers of endpoints need not have all of them.
  step = state.on_response(response(XdsKind::endpoints, "2", "e2", {assignment("other", {})}), start);
  ASSERT_TRUE(step);
  EXPECT_EQ(addresses_in(state).size(), 2U);
}

TEST(XdsState, EnvelopesUnknownFieldsAndOtherResourcesAreAccepted) {
  XdsState state = new_state();
  state.begin(start);
  const std::string listener = listener_inline("svc", routes_to("", "blue"));
  std::string with_more = listener;
  with_more += Fields().number(900, 1).bytes(901, "x");
  const std::string envelope = Fields().bytes(3, "svc").bytes(1, "7").bytes(2, any_of(XdsKind::listener, with_more));
  std::string answer =
      Fields().bytes(1, "1").bytes(5, "n").bytes(4, "type.googleapis.com/envoy.config.listener.v3.Listener");
  answer += Fields().bytes(2, any_of("envoy.service.discovery.v3.Resource", envelope));
  answer += Fields().bytes(2, any_of(XdsKind::listener, Fields().bytes(1, "other"))).number(77, 3);
  const auto step = state.on_response(answer, start);
  ASSERT_TRUE(step);
  EXPECT_EQ(state.problem(), "");
  ASSERT_EQ(step->requests.size(), 2U);
  EXPECT_EQ(step->requests[1], expected({.kind = XdsKind::cluster, .name = "blue"}));
  // Secrets were not requested.
  const std::string secrets = Fields().bytes(4, "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret");
  EXPECT_TRUE(state.on_response(secrets, start)->requests.empty());
}

TEST(XdsState, ContradictionsAndOtherTypesAreRefused) {
  XdsState state = new_state();
  state.begin(start);
  const std::string listener = listener_by_rds("svc", "routes");
  ASSERT_TRUE(state.on_response(response(XdsKind::listener, "1", "1", {listener, listener}), start));
  EXPECT_EQ(state.problem(), "listener 'svc' was refused: the answer has it twice");
  std::string other = response(XdsKind::listener, "1", "1", {});
  other += Fields().bytes(2, any_of(XdsKind::cluster, eds_cluster("svc")));
  ASSERT_TRUE(state.on_response(other, start));
  EXPECT_EQ(state.problem(),
            "listener 'svc' was refused: the answer has a resource of the type 'envoy.config.cluster.v3.Cluster'");
  ASSERT_TRUE(state.on_response(response(XdsKind::listener, "1", "1", {"\x0a\x7f"}), start));
  EXPECT_EQ(state.problem(), "listener 'svc' was refused: a message is malformed");
  const std::string far = listener_by_rds("svc", std::string(XdsState::name_bytes_max + 1, 'x'));
  ASSERT_TRUE(state.on_response(response(XdsKind::listener, "1", "1", {far}), start));
  EXPECT_EQ(state.problem(), "listener 'svc' was refused: it leads to a name of 2049 bytes, more than 2048");
  accept(state, whole_chain("1"));
}

std::string prefix_of_all() { return Fields().bytes(1, ""); }

// A list of one endpoint whose host has the name of the cluster.
std::string list_of(std::string_view cluster) {
  return assignment(cluster, {locality("z", 1, 0, {{std::string(cluster), 80}})});
}
std::string split_routes(const std::vector<std::string>& clusters) {
  Fields weighted;
  for (const std::string& one : clusters) weighted.bytes(1, Fields().bytes(1, one).bytes(2, wrapped(1)));
  const std::string action = Fields().bytes(3, weighted);
  return route_configuration("routes", {virtual_host("*", {Fields().bytes(1, prefix_of_all()).bytes(2, action)})});
}
// The names of the resources that a request is for.
std::vector<std::string> names_in(std::string_view request) {
  std::vector<std::string> names;
  protocol::grpc::visit_fields(request, [&](const protocol::grpc::ProtoField& field) {
    if (field.number == 3) names.emplace_back(field.bytes);
  });
  return names;
}
using Names = std::vector<std::string>;

// A state that follows the clusters a and b, whose lists are known.
XdsState split_state() {
  XdsState state = new_state();
  state.begin(start);
  accept(state, std::vector{response(XdsKind::listener, "1", "l", {listener_by_rds("svc", "routes")}),
                            response(XdsKind::route, "1", "r", {split_routes({"a", "b"})}),
                            response(XdsKind::cluster, "1", "c", {eds_cluster("a"), eds_cluster("b")}),
                            response(XdsKind::endpoints, "1", "e", {list_of("a"), list_of("b")})});
  return state;
}

TEST(XdsState, SeveralClustersTakeEffectTogether) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, std::vector{response(XdsKind::listener, "1", "l", {listener_by_rds("svc", "routes")})});
  auto step = state.on_response(response(XdsKind::route, "1", "r", {split_routes({"b", "a"})}), start);
  ASSERT_EQ(step->requests.size(), 2U);
  EXPECT_EQ(names_in(step->requests[1]), (Names{"a", "b"}));
  step = state.on_response(response(XdsKind::cluster, "1", "c", {eds_cluster("a"), eds_cluster("b")}), start);
  ASSERT_EQ(step->requests.size(), 2U);
  EXPECT_EQ(names_in(step->requests[1]), (Names{"a", "b"}));
  EXPECT_EQ(state.on_response(response(XdsKind::endpoints, "1", "e", {list_of("a")}), start)->news, News::none);
  EXPECT_FALSE(state.known());
  EXPECT_EQ(state.on_response(response(XdsKind::endpoints, "2", "e", {list_of("b")}), start)->news, News::changed);
  EXPECT_EQ(state.main(), "b") << "the first one of the routes";
  EXPECT_EQ(state.cluster("a")->endpoints->front().address, "a:80");
  EXPECT_EQ(state.cluster("b")->endpoints->front().address, "b:80");
}

// Nobody has asked for the assignment then. It is asked for with the cluster.
TEST(XdsState, AClusterMayArriveBehindItsAssignment) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, std::vector{response(XdsKind::listener, "1", "l", {listener_by_rds("svc", "routes")}),
                            response(XdsKind::route, "1", "r", {split_routes({"a", "b"})}),
                            response(XdsKind::cluster, "1", "c1", {eds_cluster("a")}),
                            response(XdsKind::endpoints, "1", "e1", {list_of("a"), list_of("b")})});
  EXPECT_FALSE(state.known());
  auto step = state.on_response(response(XdsKind::cluster, "2", "c2", {eds_cluster("a"), eds_cluster("b")}), start);
  EXPECT_EQ(names_in(step->requests.at(1)), (Names{"a", "b"}));
  EXPECT_EQ(state.on_response(response(XdsKind::endpoints, "2", "e2", {list_of("b")}), start)->news, News::changed);
  EXPECT_EQ(state.cluster("a")->endpoints->front().address, "a:80");
  EXPECT_EQ(state.cluster("b")->endpoints->front().address, "b:80");

  // The same while other routes are in effect, which stay until then.
  state.on_response(response(XdsKind::route, "2", "r", {split_routes({"a", "c"})}), start);
  state.on_response(response(XdsKind::endpoints, "3", "e3", {list_of("a"), list_of("b"), list_of("c")}), start);
  EXPECT_EQ(state.routes()->clusters, (Names{"a", "b"}));
  step = state.on_response(response(XdsKind::cluster, "3", "c3", {eds_cluster("a"), eds_cluster("c")}), start);
  EXPECT_EQ(names_in(step->requests.at(1)), (Names{"a", "c"}));
  EXPECT_EQ(state.routes()->clusters, (Names{"a", "b"}));
  EXPECT_EQ(state.on_response(response(XdsKind::endpoints, "4", "e4", {list_of("c")}), start)->news, News::changed);
  EXPECT_EQ(state.routes()->clusters, (Names{"a", "c"}));
  EXPECT_EQ(state.cluster("c")->endpoints->front().address, "c:80");
  EXPECT_EQ(state.problem(), "");
}

// A new list makes no copy of the routes, and the same routes again are not a change.
TEST(XdsState, RoutesAreSharedUntilTheyChange) {
  XdsState state = split_state();
  const std::shared_ptr<const XdsRoutes> routes = state.routes();
  EXPECT_EQ(state.on_response(response(XdsKind::endpoints, "2", "e", {list_of("b")}), start)->news, News::changed);
  EXPECT_EQ(state.routes(), routes);
  EXPECT_EQ(state.on_response(response(XdsKind::route, "2", "r", {split_routes({"a", "b"})}), start)->news,
            News::confirmed);
  EXPECT_EQ(state.routes(), routes);
  // Others, and the same again before the others are complete.
  state.on_response(response(XdsKind::route, "3", "r", {split_routes({"a", "c"})}), start);
  state.on_response(response(XdsKind::route, "4", "r", {split_routes({"a", "b"})}), start);
  EXPECT_EQ(state.routes(), routes);
  EXPECT_EQ(routes.use_count(), 3) << "this, the routes that are wanted and those in effect";
}

TEST(XdsState, ANewClusterLeavesTheMainOne) {
  XdsState state = split_state();
  EXPECT_EQ(state.main(), "a");
  // c comes and b goes: b is followed until c is there.
  auto step = state.on_response(response(XdsKind::route, "2", "r", {split_routes({"c", "a"})}), start);
  EXPECT_EQ(names_in(step->requests.at(1)), (Names{"a", "c"}));
  EXPECT_EQ(state.routes()->clusters, (Names{"a", "b"}));
  EXPECT_EQ(state.on_response(response(XdsKind::endpoints, "2", "e", {list_of("b")}), start)->news, News::changed);
  step = state.on_response(response(XdsKind::cluster, "2", "c", {eds_cluster("a"), eds_cluster("c")}), start);
  EXPECT_EQ(names_in(step->requests.at(1)), (Names{"a", "c"}));
  EXPECT_EQ(state.on_response(response(XdsKind::endpoints, "3", "e", {list_of("c")}), start)->news, News::changed);
  EXPECT_EQ(state.main(), "a");
  EXPECT_FALSE(state.cluster("b"));
  // Without a, the cluster that was not there before is the main one.
  accept(state, std::vector{response(XdsKind::route, "3", "r", {split_routes({"c", "d"})}),
                            response(XdsKind::cluster, "3", "c", {eds_cluster("c"), eds_cluster("d")}),
                            response(XdsKind::endpoints, "4", "e", {list_of("d")})});
  EXPECT_EQ(state.main(), "d");
}

TEST(XdsState, AGoodClusterIsUsedBesideARefusedOne) {
  XdsState state = split_state();
  const std::string other = std::string(eds_cluster("a")) + std::string(Fields().number(6, 1));
  const std::string bad = Fields().bytes(1, "b").number(2, 1);
  const auto step = state.on_response(response(XdsKind::cluster, "2", "c2", {bad, other}), start);
  EXPECT_TRUE(step->refused);
  EXPECT_EQ(state.problem(), "cluster 'b' was refused: the type of the cluster is not EDS, which is not supported");
  EXPECT_EQ(state.cluster("a")->policy.balancing, Balancing::weighted_round_robin) << "until both are good";
  accept(state, std::vector{response(XdsKind::cluster, "3", "c3", {eds_cluster("b"), other})});
  EXPECT_EQ(state.cluster("a")->policy.balancing, Balancing::least_request);
}

TEST(XdsState, TheFirstRoutesServeWithoutAClusterThatDoesNotExist) {
  XdsState state = new_state();
  state.begin(start);
  accept(state, std::vector{response(XdsKind::listener, "1", "l", {listener_by_rds("svc", "routes")}),
                            response(XdsKind::route, "1", "r", {split_routes({"a", "b"})}),
                            response(XdsKind::cluster, "1", "c", {eds_cluster("b")}),
                            response(XdsKind::endpoints, "1", "e", {list_of("b")})});
  EXPECT_FALSE(state.known());
  EXPECT_FALSE(state.on_time(start + absent - 1ms));
  EXPECT_TRUE(state.on_time(start + absent));
  EXPECT_EQ(state.main(), "b");
  ASSERT_FALSE(state.cluster("a"));
  EXPECT_TRUE(state.cluster("a").error().text.starts_with("cluster 'a' does not exist: it was not sent within"));
  EXPECT_FALSE(state.on_time(start + absent)) << "it is known";
}

TEST(XdsState, TheEndpointsOfAllClustersAreBoundedTogether) {
  XdsState state = split_state();
  const std::vector<PlayedEndpoint> many(EndpointLimits::endpoints_max, {"h", 1});
  const auto full = assignment("a", {locality("z", 1, 0, many)});
  EXPECT_TRUE(state.on_response(response(XdsKind::endpoints, "2", "e", {full}), start)->refused);
  EXPECT_EQ(state.problem(),
            "load assignment 'a' was refused: more than 10000 endpoints serve, of which other clusters of the name "
            "have 1");
  EXPECT_EQ(state.cluster("a")->endpoints->size(), 1U);
  // A locality that gets no calls does not count.
  const auto drained = assignment("a", {locality("z", 1, 0, {{"h", 1}}), locality("y", 0, 0, many)});
  EXPECT_FALSE(state.on_response(response(XdsKind::endpoints, "3", "e", {drained}), start)->refused);
  EXPECT_EQ(state.problem(), "");
}

// 6,000 endpoints and then 6,000 others, of which one cluster at a time is wanted.
TEST(XdsState, ALargeClusterReplacesALargeOne) {
  XdsState state = split_state();
  const std::vector<PlayedEndpoint> many(6'000, {"h", 1});
  const auto large = [&](std::string_view cluster) {
    return response(XdsKind::endpoints, "2", "e", {assignment(cluster, {locality("z", 1, 0, many)})});
  };
  accept(state, std::vector{response(XdsKind::route, "2", "r", {split_routes({"a"})}), large("a"),
                            response(XdsKind::route, "3", "r", {split_routes({"c"})}),
                            response(XdsKind::cluster, "2", "c", {eds_cluster("c")}), large("c")});
  EXPECT_EQ(state.main(), "c");
  EXPECT_EQ(state.cluster("c")->endpoints->size(), many.size());
}

TEST(XdsState, ClustersMayExchangeTheirLoadAssignments) {
  XdsState state = split_state();
  const auto exchanged = response(XdsKind::cluster, "2", "c", {eds_cluster("a", "b"), eds_cluster("b", "a")});
  const auto step = state.on_response(exchanged, start);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->requests.size(), 1U) << "nothing else is wanted";
  EXPECT_EQ(step->news, News::changed);
  EXPECT_EQ(state.cluster("a")->endpoints->front().address, "b:80");
  EXPECT_EQ(state.cluster("b")->endpoints->front().address, "a:80");
}

TEST(XdsState, ALoadAssignmentOfTwoClustersCountsOnce) {
  XdsState state = split_state();
  const std::vector<PlayedEndpoint> many(6'000, {"h", 1});
  accept(state, std::vector{response(XdsKind::cluster, "2", "c", {eds_cluster("a", "x"), eds_cluster("b", "x")}),
                            response(XdsKind::endpoints, "2", "e", {assignment("x", {locality("z", 1, 0, many)})})});
  EXPECT_EQ(state.cluster("a")->endpoints->size(), many.size());
  EXPECT_EQ(state.cluster("b")->endpoints->size(), many.size());
}

// Routes that lead to other clusters each time, of which one arrives: what is left behind is forgotten.
TEST(XdsState, AFloodOfClustersLeavesNothingBehind) {
  XdsState state = split_state();
  const std::vector<PlayedEndpoint> some(500, {"h", 1});
  for (int i = 0; i < 40; ++i) {
    const std::string number = std::to_string(i);
    ASSERT_TRUE(
        state.on_response(response(XdsKind::route, number, "r", {split_routes({"x" + number, "never"})}), start));
    ASSERT_TRUE(state.on_response(response(XdsKind::cluster, number, "c", {eds_cluster("x" + number)}), start));
    const auto list = assignment("x" + number, {locality("z", 1, 0, some)});
    const auto step = state.on_response(response(XdsKind::endpoints, number, "e", {list}), start);
    ASSERT_TRUE(step && !step->refused) << state.problem();
  }
  EXPECT_EQ(state.routes()->clusters, (Names{"a", "b"}));
}

TEST(XdsState, MalformedAnswersEndTheStream) {
  XdsState state = new_state();
  state.begin(start);
  EXPECT_FALSE(state.on_response("\x0a\x7f", start));
  const auto step = state.on_response(response(XdsKind::listener, std::string(5000, 'v'), "1", {}), start);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().text, "the version or the nonce of an answer has more than 4096 bytes");
  std::string many;
  for (int i = 0; i < 100'001; ++i) many.append("\x12\x00", 2);
  const auto bounded = state.on_response(many, start);
  ASSERT_FALSE(bounded);
  EXPECT_EQ(bounded.error().text, "an answer has more than 100000 resources");
}

}  // namespace
}  // namespace hawser::cluster
