#include "cluster/xds/xds_policy.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/remote_duration.h"
#include "cluster/route_index.h"
#include "cluster/xds/test/xds_messages.h"
#include "cluster/xds/xds_methods.h"
#include "cluster/xds/xds_route.h"
#include "cluster/xds/xds_state.h"

namespace hawser::cluster {
namespace {

using namespace std::chrono_literals;
using namespace played_xds;

std::string typed(std::string_view name, std::string_view config = {}) {
  const std::string any = any_of("envoy.extensions.load_balancing_policies." + std::string(name), config);
  return Fields().bytes(1, Fields().bytes(4, Fields().bytes(1, "name").bytes(2, any)));
}

std::string cluster_error(std::string_view fields) {
  const auto read = read_cluster_policy(std::string(eds_cluster("c")) + std::string(fields));
  return read ? "it is accepted" : read.error().text;
}
NamingPolicy cluster_policy(std::string_view fields) {
  auto read = read_cluster_policy(std::string(eds_cluster("c")) + std::string(fields));
  EXPECT_TRUE(read) << read.error().text;
  return read ? std::move(*read) : NamingPolicy();
}

TEST(XdsPolicy, TheBalancingIsThatOfTheCluster) {
  EXPECT_EQ(cluster_policy(""), (NamingPolicy{.balancing = Balancing::weighted_round_robin}));
  EXPECT_EQ(cluster_policy(Fields().number(6, 1)), (NamingPolicy{.balancing = Balancing::least_request}));
  EXPECT_EQ(cluster_policy(Fields().number(6, 1).bytes(37, Fields().bytes(1, wrapped(5)))).choices, 5U);
  EXPECT_EQ(cluster_policy(Fields().number(6, 1).bytes(37, Fields().bytes(1, wrapped(99)))).choices, 10U);
  EXPECT_EQ(cluster_policy(Fields().number(6, 3)).balancing, Balancing::random);
  EXPECT_EQ(cluster_policy(Fields().number(6, 5)).balancing, Balancing::maglev);
  EXPECT_EQ(cluster_policy(Fields().number(6, 2)), (NamingPolicy{.balancing = Balancing::ring_hash}));
  const auto ring = [](std::uint64_t least, std::uint64_t most) {
    return Fields().number(6, 2).bytes(23, Fields().bytes(1, wrapped(least)).bytes(4, wrapped(most)));
  };
  EXPECT_EQ(cluster_policy(ring(16, 64)).ring_points_min, 16U);
  EXPECT_EQ(cluster_policy(ring(16, 64)).ring_points_max, 64U);
  EXPECT_EQ(cluster_policy(ring(8'388'608, 8'388'608)).ring_points_min, 4096U);
  EXPECT_TRUE(cluster_error(ring(65, 64)).starts_with("minimum_ring_size (65) is above maximum_ring_size (64)"));
  EXPECT_TRUE(cluster_error(ring(1, 8'388'609)).contains("not from 1 to 8388608"));
  EXPECT_EQ(cluster_error(Fields().number(6, 2).bytes(23, Fields().number(3, 1))),
            "the hash function of the ring is not XX_HASH");
  EXPECT_EQ(cluster_error(Fields().number(6, 1).bytes(37, Fields().bytes(1, wrapped(1)))),
            "choice_count of the least request policy is below 2");
  EXPECT_EQ(cluster_error(Fields().number(6, 6)),
            "lb_policy 6 is not supported: use ROUND_ROBIN, LEAST_REQUEST, RING_HASH, RANDOM or MAGLEV");
}

TEST(XdsPolicy, TypedPoliciesPrecede) {
  const auto of = [](std::string_view list) { return cluster_policy(Fields().number(6, 99).bytes(41, list)); };
  const std::string round_robin = typed("round_robin.v3.RoundRobin");
  EXPECT_EQ(of(round_robin).balancing, Balancing::round_robin);
  EXPECT_EQ(of(typed("wrr_locality.v3.WrrLocality", Fields().bytes(1, round_robin))).balancing,
            Balancing::weighted_round_robin);
  EXPECT_EQ(of(typed("least_request.v3.LeastRequest", Fields().bytes(1, wrapped(4)))),
            (NamingPolicy{.balancing = Balancing::least_request, .choices = 4}));
  EXPECT_EQ(of(typed("ring_hash.v3.RingHash", Fields().number(1, 1).bytes(2, wrapped(9)).bytes(3, wrapped(10)))),
            (NamingPolicy{.balancing = Balancing::ring_hash, .ring_points_min = 9, .ring_points_max = 10}));
  EXPECT_EQ(of(typed("pick_first.v3.PickFirst")).balancing, Balancing::pick_first);
  EXPECT_EQ(of(typed("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin")).balancing,
            Balancing::weighted_round_robin);
  EXPECT_EQ(of(typed("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin")).load_weights,
            LoadWeightOptions())
      << "as in gRFC A58";
  EXPECT_FALSE(of(round_robin).load_weights);
  EXPECT_EQ(of(typed("own.v3.Own") + typed("random.v3.Random") + round_robin).balancing, Balancing::random)
      << "the first one that is known";
  const auto error = [](std::string_view list) { return cluster_error(Fields().bytes(41, list)); };
  EXPECT_EQ(error(typed("own.v3.Own")), "load_balancing_policy has no policy that is supported");
  EXPECT_EQ(error(""), "load_balancing_policy has no policy that is supported");
  EXPECT_EQ(error(typed("ring_hash.v3.RingHash", Fields().number(1, 2))),
            "the hash function of the ring is not XX_HASH");
  std::string deep = round_robin;
  for (int i = 0; i < 16; ++i) deep = typed("wrr_locality.v3.WrrLocality", Fields().bytes(1, deep));
  EXPECT_EQ(of(deep).balancing, Balancing::weighted_round_robin);
  EXPECT_EQ(error(typed("wrr_locality.v3.WrrLocality", Fields().bytes(1, deep))),
            "load_balancing_policy has more than 16 levels");
}

TEST(XdsPolicy, WeightsByLoadAreRead) {
  const auto list = [](const Fields& config) {
    return Fields().bytes(41, typed("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin", config));
  };
  const std::string_view half = std::string_view("\x0D\0\0\0\x3F", 5);  // The float 0.5 as the field 1.
  const NamingPolicy all = cluster_policy(list(Fields()
                                                   .bytes(1, wrapped(1))
                                                   .bytes(2, duration(20s))
                                                   .bytes(3, duration(1s))
                                                   .bytes(4, duration(60s))
                                                   .bytes(5, duration(2s))
                                                   .bytes(6, half)));
  EXPECT_EQ(all.load_weights,
            (LoadWeightOptions{.blackout = 1s, .expiry = 60s, .update = 2s, .error_penalty = 0.5, .out_of_band = 20s}));
  EXPECT_EQ(cluster_policy(list(Fields().bytes(1, wrapped(1)))).load_weights->out_of_band, 10s);
  EXPECT_EQ(cluster_policy(list(Fields().bytes(2, duration(20s)))).load_weights->out_of_band, 0s) << "not enabled";
  const NamingPolicy cut = cluster_policy(
      list(Fields().bytes(1, wrapped(1)).bytes(2, duration(1ms)).bytes(4, duration(0s)).bytes(5, duration(1ms))));
  EXPECT_EQ(cut.load_weights, (LoadWeightOptions{.expiry = 100ms, .update = 100ms, .out_of_band = 100ms}));
  const std::string_view negative = std::string_view("\x0D\0\0\0\xBF", 5);
  const std::string_view not_a_number = std::string_view("\x0D\0\0\xC0\x7F", 5);
  for (const std::string_view penalty : {negative, not_a_number}) {
    EXPECT_EQ(cluster_error(list(Fields().bytes(6, penalty))),
              "error_utilization_penalty of the weighted round robin policy is below 0, or not a number");
  }
  EXPECT_EQ(cluster_error(list(Fields().bytes(6, Fields().bytes(1, "abc")))), "a FloatValue is malformed");
}

TEST(XdsPolicy, OutliersAndLimitsAreRead) {
  EXPECT_FALSE(cluster_policy("").outliers);
  const OutlierOptions by_default = *cluster_policy(Fields().bytes(19, "")).outliers;
  EXPECT_EQ(by_default, (OutlierOptions{.failure_enforced = 0})) << "as in gRFC A50";
  const Fields all = Fields()
                         .bytes(2, duration(5s))
                         .bytes(3, duration(1500ms))
                         .bytes(4, wrapped(40))
                         .bytes(6, wrapped(30))
                         .bytes(7, wrapped(3))
                         .bytes(8, wrapped(20))
                         .bytes(9, wrapped(1500))
                         .bytes(16, wrapped(60))
                         .bytes(17, wrapped(70))
                         .bytes(19, wrapped(4))
                         .bytes(20, wrapped(21))
                         .bytes(21, duration(9s));
  EXPECT_EQ(*cluster_policy(Fields().bytes(19, all)).outliers, (OutlierOptions{.interval = 5s,
                                                                               .base_time = 1500ms,
                                                                               .time_max = 9s,
                                                                               .excluded_max = 0.4,
                                                                               .endpoints_min = 3,
                                                                               .success_rate_deviations = 1.5,
                                                                               .success_rate_calls_min = 20,
                                                                               .failure_part = 0.6,
                                                                               .failure_calls_min = 21,
                                                                               .failure_endpoints_min = 4,
                                                                               .success_rate_enforced = 0.3,
                                                                               .failure_enforced = 0.7}));
  EXPECT_EQ(cluster_policy(Fields().bytes(19, Fields().bytes(2, duration(0s)))).outliers->interval, 100ms);
  EXPECT_EQ(cluster_error(Fields().bytes(19, Fields().bytes(4, wrapped(101)))),
            "outlier_detection.max_ejection_percent is above 100");
  EXPECT_EQ(cluster_error(Fields().bytes(19, Fields().bytes(2, Fields().number(1, ~std::uint64_t{0})))),
            "a duration is negative or malformed");
  const auto limits = [](std::uint64_t priority, std::uint64_t most) {
    return std::string(Fields().bytes(1, Fields().number(1, priority).bytes(4, wrapped(most))));
  };
  EXPECT_EQ(cluster_policy(Fields().bytes(10, limits(1, 5) + limits(0, 7) + limits(0, 8))).calls_max, 7U);
  EXPECT_EQ(cluster_policy(Fields().bytes(10, limits(1, 5))).calls_max, std::nullopt);
  EXPECT_EQ(cluster_policy(Fields().bytes(10, Fields().bytes(1, ""))).calls_max, std::nullopt);
  const auto drop = [](std::uint64_t numerator, std::uint64_t denominator) {
    return Fields().bytes(2, Fields().bytes(1, "c").bytes(2, Fields().number(1, numerator).number(2, denominator)));
  };
  const auto dropped = [](const std::string& policy) {
    return *read_dropped_part(Fields().bytes(1, "e").bytes(4, policy));
  };
  EXPECT_DOUBLE_EQ(*read_dropped_part(assignment("e", {})), 0);
  EXPECT_DOUBLE_EQ(dropped(drop(20, 0)), 0.2);
  EXPECT_DOUBLE_EQ(dropped(std::string(drop(5'000, 1)) + std::string(drop(100'000, 2))), 0.55);
  EXPECT_DOUBLE_EQ(dropped(drop(900, 0)), 1);
}

const std::string all_methods = Fields().bytes(1, "");
std::string prefix(std::string_view text) { return Fields().bytes(1, text); }
std::string path(std::string_view text) { return Fields().bytes(2, text); }
std::string route(std::string_view match, std::string_view action) {
  return Fields().bytes(1, match).bytes(2, std::string(Fields().bytes(1, "c")) + std::string(action));
}
std::string within(Duration time) { return Fields().bytes(36, Fields().bytes(1, duration(time))); }
std::string retrying(std::string_view policy) { return Fields().bytes(9, policy); }

Result<XdsRoutes> read_routes(const std::vector<std::string>& routes, std::string_view more = {}) {
  const std::string host = virtual_host("*", routes) + std::string(more);
  return read_route_configuration(route_configuration("r", {host}), "h");
}
std::string routes_error(const std::vector<std::string>& routes) {
  const auto read = read_routes(routes);
  return read ? "it is accepted" : read.error().text;
}
// The timeout in milliseconds that a method gets; 0 if it gets none.
std::int64_t timeout_of(const std::vector<std::string>& routes, std::string_view method) {
  const auto read = read_routes(routes);
  EXPECT_TRUE(read) << read.error().text;
  if (!read) return 0;
  const NamingRoutes all = naming_routes_of(*read, "c", true);
  Random random(1);
  const NamingRoutes::Route* const found = RouteIndex(all).find(method, {}, random);
  if (found == nullptr || !found->config.timeout) return 0;
  return std::chrono::duration_cast<std::chrono::milliseconds>(*found->config.timeout).count();
}

TEST(XdsMethods, TheFirstRouteThatMatchesCounts) {
  const std::vector<std::string> routes = {
      route(path("/shop.Cart/Add"), within(1s)),  route(prefix("/shop.Cart/"), within(2s)),
      route(path("/shop.Cart/Buy"), within(3s)),  route(prefix("/shop.Cart/"), within(4s)),
      route(path("/shop::List/put"), within(5s)), route(prefix("/shop.Free/"), ""),
      route(all_methods, within(1500ms)),         route(prefix("/shop.Late/"), within(7s))};
  EXPECT_EQ(timeout_of(routes, "shop.Cart/Add"), 1000);
  EXPECT_EQ(timeout_of(routes, "shop.Cart/Buy"), 2000) << "the prefix is earlier";
  EXPECT_EQ(timeout_of(routes, "shop.Cart/See"), 2000);
  EXPECT_EQ(timeout_of(routes, "shop::List::put"), 5000);
  EXPECT_EQ(timeout_of(routes, "shop.Free/See"), 0) << "a route without demands precedes";
  EXPECT_EQ(timeout_of(routes, "shop.Late/See"), 1500);
  EXPECT_EQ(timeout_of({route(all_methods, within(0s))}, "a/b"), 0) << "no limit";
  const std::string header = Fields().bytes(36, Fields().bytes(1, duration(9s)).bytes(2, duration(2s)));
  EXPECT_EQ(timeout_of({route(all_methods, header)}, "a/b"), 2000) << "grpc_timeout_header_max precedes";
  EXPECT_EQ(timeout_of({route(all_methods, Fields().bytes(8, duration(1s)))}, "a/b"), 0)
      << "timeout is not that of gRPC";
}

TEST(XdsMethods, RoutesByARegularExpressionDemandTheSameOrAreRefused) {
  const std::string regex = Fields().bytes(10, "x");
  EXPECT_EQ(timeout_of({route(regex, within(1s)), route(all_methods, within(1s))}, "a/b"), 1000);
  EXPECT_TRUE(routes_error({route(regex, within(1s)), route(all_methods, "")}).starts_with("route 0 matches by more"));
  EXPECT_TRUE(routes_error({route(regex, ""), route(path("/a/b"), within(1s)), route(all_methods, "")})
                  .starts_with("route 0 matches by more"));
}

TEST(XdsMethods, RetriesAreThoseOfTheRouteOrTheVirtualHost) {
  const auto retry_of = [](std::string_view action, std::string_view host) {
    const auto read = read_routes({route(all_methods, action)}, host);
    EXPECT_TRUE(read) << read.error().text;
    return naming_routes_of(*read, "c", true).routes.front().config.retry;
  };
  const std::string plain = Fields().bytes(1, "5xx, unavailable ,internal");
  const auto by_default = retry_of(retrying(plain), "");
  ASSERT_TRUE(by_default);
  EXPECT_EQ(by_default->attempts_max, 2U);
  EXPECT_EQ(by_default->backoff_first, 25ms);
  EXPECT_EQ(by_default->backoff_max, 250ms);
  EXPECT_EQ(by_default->application_codes, (std::vector<std::int32_t>{13, 14}));
  const std::string pauses = Fields().bytes(1, duration(40ms)).bytes(2, duration(60ms));
  const std::string own = Fields().bytes(1, "cancelled").bytes(2, wrapped(3)).bytes(8, pauses);
  for (const auto& [action, host] :
       {std::pair{retrying(own), Fields().bytes(16, plain)}, {"", Fields().bytes(16, own)}}) {
    const auto retry = retry_of(action, host);
    ASSERT_TRUE(retry);
    EXPECT_EQ(retry->attempts_max, 4U);
    EXPECT_EQ(retry->backoff_first, 40ms);
    EXPECT_EQ(retry->backoff_max, 60ms);
    EXPECT_EQ(retry->application_codes, std::vector<std::int32_t>{1});
  }
  EXPECT_EQ(retry_of(retrying(Fields().bytes(1, "5xx")), Fields().bytes(16, own)), std::nullopt);
  EXPECT_EQ(retry_of(retrying(Fields().bytes(1, "internal").bytes(2, wrapped(1'000'000))), "")->attempts_max, 5U);
  EXPECT_EQ(routes_error({route(all_methods, retrying(Fields().bytes(2, wrapped(0))))}),
            "route 0: retry_policy.num_retries is 0");
  const std::string ages = Fields().bytes(1, Fields().number(1, 315'576'000'000));
  const auto aged = retry_of(retrying(Fields().bytes(1, "internal").bytes(8, ages)), "");
  ASSERT_TRUE(aged) << "ten times of it overflow nothing";
  EXPECT_EQ(aged->backoff_first, remote_duration_max);
  EXPECT_EQ(routes_error({route(all_methods,
                                retrying(Fields().bytes(8, Fields().bytes(1, Fields().number(1, 315'576'000'001)))))}),
            "route 0: a duration is negative or malformed");
  EXPECT_TRUE(routes_error({route(all_methods, retrying(Fields().bytes(8, Fields().bytes(1, duration(0s)))))})
                  .contains("base_interval is 0"));
}

TEST(XdsMethods, KeysAreHeaders) {
  const auto hashed = [](std::string_view policy) { return std::string(Fields().bytes(15, policy)); };
  const auto header = [](std::string_view name) { return Fields().bytes(1, Fields().bytes(1, name)); };
  const std::string keys = hashed(header("user").number(4, 1)) + hashed(Fields().bytes(2, "cookie")) +
                           hashed(header("x-bin")) + hashed(header("session"));
  EXPECT_EQ(read_routes({route(all_methods, keys)})->routes.front().demands.keys,
            (std::vector<NamingPolicy::Key>{{.metadata = "user", .terminal = true}, {.metadata = "session"}}));
  EXPECT_EQ(read_routes({route(all_methods, hashed(header("X-User-ID")) + hashed(header("X-Bin")))})
                ->routes.front()
                .demands.keys,
            std::vector<NamingPolicy::Key>{{.metadata = "x-user-id"}});
  EXPECT_EQ(routes_error({route(all_methods, hashed(Fields().bytes(1, Fields().bytes(1, "a").bytes(2, "x"))))}),
            "route 0: hash_policy.header.regex_rewrite is not supported");
  std::string many;
  for (int i = 0; i < 17; ++i) many += hashed(header("h" + std::to_string(i)));
  EXPECT_EQ(routes_error({route(all_methods, many)}), "route 0: a route has more than 16 hash policies");
}

TEST(XdsMethods, FloodsOfRoutesAreRefused) {
  std::vector<std::string> many;
  for (int i = 0; i < 10'000; ++i) many.push_back(route(path("/s/m" + std::to_string(i)), within(1s)));
  many.push_back(route(all_methods, ""));
  EXPECT_EQ(routes_error(many), "route 10000: there are more than 10000");
}

// The demands of a chain take effect when all of its resources have arrived.
TEST(XdsState, DemandsAreThoseOfAWholeChain) {
  using News = XdsState::News;
  XdsState state("svc", "svc", "node", 15s);
  state.begin(Time(1h));
  const auto answer = [&state](XdsKind kind, const std::string& resource) {
    const auto step = state.on_response(response(kind, "1", "n", {resource}), Time(1h));
    EXPECT_TRUE(step);
    return step ? step->news : News::none;
  };
  const auto routes = [](std::string_view cluster, Duration time) {
    const std::string action = std::string(Fields().bytes(1, cluster)) + within(time);
    return route_configuration("routes", {virtual_host("*", {Fields().bytes(1, all_methods).bytes(2, action)})});
  };
  const std::vector<std::string> list = {locality("z", 1, 0, {{"10.0.0.1", 80}})};
  EXPECT_EQ(answer(XdsKind::listener, listener_by_rds("svc", "routes")), News::none);
  EXPECT_EQ(answer(XdsKind::route, routes("blue", 1s)), News::none);
  EXPECT_EQ(answer(XdsKind::cluster, eds_cluster("blue")), News::none);
  EXPECT_EQ(answer(XdsKind::endpoints, assignment("blue", list)), News::changed);
  const auto policy = [&state] { return state.cluster(state.main())->policy; };
  const auto timeout = [&state] { return state.routes()->routes.front().demands.timeout; };
  EXPECT_EQ(policy().balancing, Balancing::weighted_round_robin);
  EXPECT_EQ(timeout(), 1s);
  EXPECT_EQ(answer(XdsKind::route, routes("blue", 2s)), News::changed) << "of the same endpoints";
  EXPECT_EQ(timeout(), 2s);
  EXPECT_EQ(answer(XdsKind::route, routes("blue", 2s)), News::confirmed);
  // Another cluster: the demands of both do not mix.
  EXPECT_EQ(answer(XdsKind::route, routes("green", 3s)), News::none);
  EXPECT_EQ(answer(XdsKind::cluster, std::string(eds_cluster("green")) + std::string(Fields().number(6, 2))),
            News::none);
  EXPECT_EQ(timeout(), 2s);
  EXPECT_EQ(policy().balancing, Balancing::weighted_round_robin);
  EXPECT_EQ(answer(XdsKind::endpoints, assignment("green", list)), News::changed);
  EXPECT_EQ(timeout(), 3s);
  EXPECT_EQ(policy().balancing, Balancing::ring_hash);
  // A refused cluster changes nothing.
  const auto step = state.on_response(
      response(XdsKind::cluster, "2", "n", {std::string(eds_cluster("green")) + std::string(Fields().number(6, 6))}),
      Time(1h));
  ASSERT_TRUE(step);
  EXPECT_TRUE(step->refused);
  EXPECT_TRUE(state.problem().contains("lb_policy 6 is not supported"));
  EXPECT_EQ(policy().balancing, Balancing::ring_hash);
  // Meanwhile the drops follow, as the endpoints do.
  const std::string drop = Fields().bytes(2, Fields().bytes(1, "all").bytes(2, Fields().number(1, 40)));
  EXPECT_EQ(answer(XdsKind::endpoints, assignment("green", list) + std::string(Fields().bytes(4, drop))),
            News::changed);
  EXPECT_DOUBLE_EQ(policy().dropped_part, 0.4);
  EXPECT_EQ(policy().balancing, Balancing::ring_hash);
}

TEST(XdsState, WithoutPoliciesAClusterDemandsNothing) {
  XdsState state("svc", "svc", "node", 15s, false);
  state.begin(Time(1h));
  const std::string cluster = std::string(eds_cluster("blue")) + std::string(Fields().number(6, 6));
  const std::vector<std::string> answers = {
      response(XdsKind::listener, "1", "l", {listener_by_rds("svc", "routes")}),
      response(XdsKind::route, "1", "r", {routes_to("routes", "blue")}),
      response(XdsKind::cluster, "1", "c", {cluster}),
      response(XdsKind::endpoints, "1", "e", {assignment("blue", {locality("z", 1, 0, {{"10.0.0.1", 80}})})})};
  for (const std::string& answer : answers) {
    EXPECT_TRUE(state.on_response(answer, Time(1h)));
  }
  EXPECT_EQ(state.problem(), "");
  EXPECT_EQ(state.cluster("blue")->policy, NamingPolicy());
}

}  // namespace
}  // namespace hawser::cluster
