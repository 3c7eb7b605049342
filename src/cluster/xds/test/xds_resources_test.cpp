#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cluster/route_choice.h"
#include "cluster/xds/assignment_reader.h"
#include "cluster/xds/test/xds_messages.h"
#include "cluster/xds/xds_bootstrap.h"
#include "cluster/xds/xds_cluster.h"
#include "cluster/xds/xds_match.h"
#include "cluster/xds/xds_route.h"

namespace hawser::cluster {
namespace {

using namespace played_xds;

const std::string path_match = Fields().bytes(2, "/shop.Cart/Add");

std::string cluster_for(const std::vector<std::string>& hosts, std::string_view host) {
  const auto read = read_route_configuration(route_configuration("r", hosts), host);
  if (!read) return read.error().text;
  const NamingRoutes routes = naming_routes_of(*read, read->clusters.front(), true);
  return routes.routes.empty() ? "no route" : text_of_routes(routes);
}
// The same without the begin "* to ".
std::string only_cluster_for(const std::vector<std::string>& hosts, std::string_view host) {
  const std::string text = cluster_for(hosts, host);
  return text.starts_with("* to ") ? text.substr(5) : text;
}

TEST(XdsRoute, TheMostSpecificDomainCounts) {
  const auto host = [](std::string_view domain) { return virtual_host(domain, {route_to(domain)}); };
  const std::vector<std::string> hosts = {host("*"),   host("*.example"), host("*.b.example"),
                                          host("a.*"), host("a.b.*"),     host("A.B.Example")};
  EXPECT_EQ(only_cluster_for(hosts, "a.b.example"), "A.B.Example");
  EXPECT_EQ(only_cluster_for(hosts, "c.b.example"), "*.b.example");
  EXPECT_EQ(only_cluster_for(hosts, "c.example"), "*.example");
  EXPECT_EQ(only_cluster_for(hosts, "a.b.c"), "a.b.*");
  EXPECT_EQ(only_cluster_for(hosts, "a.c"), "a.*");
  EXPECT_EQ(only_cluster_for(hosts, "x"), "*");
  EXPECT_EQ(only_cluster_for({host("a")}, "b"), "no virtual host has a domain that matches 'b'");
}

TEST(XdsRoute, RoutesUpToTheFirstOneForAllCallsCount) {
  const auto of = [](const std::vector<std::string>& routes) { return cluster_for({virtual_host("*", routes)}, "h"); };
  EXPECT_EQ(of({route_to("a", path_match), route_to("b"), route_to("c")}), "/shop.Cart/Add to a; * to b");
  EXPECT_EQ(of({route_to("a", Fields().bytes(1, "/")), route_to("b", path_match)}), "/* to a");
  EXPECT_EQ(of({route_to("a", path_match)}), "/shop.Cart/Add to a") << "other calls fail";
  EXPECT_EQ(of({}), "the virtual host has no route");
  const std::string query = Fields().bytes(1, "").bytes(7, "x");
  EXPECT_EQ(of({route_to("a", query), route_to("b")}), "* to b") << "no call has parameters of a query";
  EXPECT_EQ(of({route_to("a", query)}), "the virtual host has no route");
  const std::string redirect = Fields().bytes(1, Fields().bytes(1, "")).bytes(3, "x");
  EXPECT_EQ(of({redirect}), "route 0: it does not forward calls, which is not supported");
  const std::string regex = Fields().bytes(10, "x");
  EXPECT_EQ(of({route_to("a", regex), route_to("a")}), "* to a") << "its calls get the same";
  const std::string text =
      " matches by more than a path, a prefix, headers and a fraction, such as by a regular expression, which is not "
      "supported";
  EXPECT_EQ(of({route_to("a", regex), route_to("b")}), "route 0" + text);
  EXPECT_EQ(of({route_to("a", path_match), route_to("a", regex)}), "route 1" + text);
  EXPECT_EQ(of({route_to("a", regex), route_to("b", path_match), route_to("a")}), "route 0" + text);
}

TEST(XdsRoute, ARouteLeadsToClustersByWeight) {
  const auto of = [](std::string_view action) {
    return cluster_for({virtual_host("*", {Fields().bytes(1, Fields().bytes(1, "")).bytes(2, action)})}, "h");
  };
  EXPECT_EQ(of(Fields().bytes(2, "x-cluster")), "route 0: cluster_header is not supported");
  EXPECT_EQ(of(Fields().bytes(37, "x")), "route 0: cluster_specifier_plugin is not supported");
  EXPECT_EQ(of(Fields().number(5, 1)), "route 0: it has no cluster");
  const auto weighted = [&of](const std::vector<std::pair<std::string, std::uint64_t>>& clusters) {
    Fields list;
    for (const auto& [name, weight] : clusters) list.bytes(1, Fields().bytes(1, name).bytes(2, wrapped(weight)));
    return of(Fields().bytes(3, list));
  };
  EXPECT_EQ(weighted({{"a", 0}, {"b", 7}}), "* to b");
  EXPECT_EQ(weighted({{"a", 1}, {"b", 3}}), "* to a 25 %, b 75 %");
  EXPECT_EQ(weighted({{"a", 0}}), "route 0: it has no cluster");
  EXPECT_EQ(weighted({{"a", 0xffff'fffe}, {"b", 1}}), "* to a 100 %, b 0 %");
  EXPECT_EQ(weighted({{"a", 0xffff'ffff}, {"b", 1}}),
            "route 0: the sum of the weights of clusters is above 4294967295");
  EXPECT_EQ(weighted({{"a", ~std::uint64_t{0}}}), "route 0: the sum of the weights of clusters is above 4294967295");
  EXPECT_EQ(weighted({{"a", 1}, {"a", 1}}), "route 0: weighted_clusters has 'a' twice");
  std::vector<std::pair<std::string, std::uint64_t>> many;
  for (int i = 0; i < 65; ++i) many.emplace_back("c" + std::to_string(i), 1);
  EXPECT_EQ(weighted(many), "route 0: the routes lead to more than 64 clusters");
  std::vector<std::string> routes;
  for (int i = 0; i < 65; ++i) routes.push_back(route_to("c" + std::to_string(i), path_match));
  EXPECT_EQ(cluster_for({virtual_host("*", routes)}, "h"), "the routes lead to more than 64 clusters");
}

// Routes of 64 clusters each: the sum is bounded, so that the work for them is.
TEST(XdsRoute, AFloodOfWeightsIsRefused) {
  Fields list;
  for (int i = 0; i < 64; ++i) list.bytes(1, Fields().bytes(1, "c" + std::to_string(i)).bytes(2, wrapped(1)));
  const std::string route = Fields().bytes(1, path_match).bytes(2, Fields().bytes(3, list));
  const std::vector<std::string> routes(313, route);
  EXPECT_EQ(cluster_for({virtual_host("*", routes)}, "h"), "route 312: the routes have more than 20000 clusters");
}

TEST(XdsRoute, AMatchIsReadFieldByField) {
  const auto of = [](std::string_view match) {
    const auto read = read_route_match(match);
    EXPECT_TRUE(read);
    EXPECT_EQ(read->kind, XdsMatch::Kind::calls);
    return read->match;
  };
  const std::string all = Fields().bytes(1, "");
  using Header = NamingRoutes::Header;
  const auto header = [&](const Fields& condition) {
    const auto match =
        of(all + std::string(Fields().bytes(6, std::string(Fields().bytes(1, "K")) + std::string(condition))));
    EXPECT_EQ(match.headers.size(), 1U);
    return match.headers.front();
  };
  EXPECT_EQ(of(Fields().bytes(1, "/A")), (NamingRoutes::Match{.path = "/A"}));
  EXPECT_EQ(of(Fields().bytes(2, "/A/b").bytes(4, wrapped(0))),
            (NamingRoutes::Match{.path = "/a/b", .whole = true, .any_case = true}));
  EXPECT_EQ(header(Fields()), (Header{.name = "k"}));
  EXPECT_EQ(header(Fields().bytes(4, "X")), (Header{.name = "k", .kind = Header::Kind::exact, .text = "X"}));
  EXPECT_EQ(header(Fields().bytes(6, Fields().number(1, 2).number(2, 9))),
            (Header{.name = "k", .kind = Header::Kind::range, .first = 2, .end = 9}));
  EXPECT_EQ(header(Fields().number(7, 1)).kind, Header::Kind::present);
  EXPECT_EQ(header(Fields().number(7, 0)).kind, Header::Kind::absent);
  EXPECT_EQ(header(Fields().number(7, 1).number(8, 1)).kind, Header::Kind::absent);
  EXPECT_EQ(header(Fields().number(7, 0).number(8, 1)).kind, Header::Kind::present);
  EXPECT_EQ(header(Fields().bytes(9, "x").number(8, 1)),
            (Header{.name = "k", .kind = Header::Kind::prefix, .text = "x", .inverted = true}));
  EXPECT_EQ(header(Fields().bytes(10, "x")).kind, Header::Kind::suffix);
  EXPECT_EQ(header(Fields().bytes(12, "x")).kind, Header::Kind::contains);
  EXPECT_EQ(header(Fields().bytes(13, Fields().bytes(7, "X").number(6, 1))),
            (Header{.name = "k", .kind = Header::Kind::contains, .text = "x", .any_case = true}));
  const auto part = [&](std::uint64_t numerator, std::uint64_t denominator) {
    const std::string percent = Fields().number(1, numerator).number(2, denominator);
    return of(all + std::string(Fields().bytes(9, Fields().bytes(1, percent)))).parts_per_million;
  };
  EXPECT_EQ(part(25, 0), 250'000U);
  EXPECT_EQ(part(25, 1), 2'500U);
  EXPECT_EQ(part(25, 2), 25U);
  EXPECT_EQ(part(~std::uint64_t{0}, 0), 1'000'000U);
  for (const std::string& unsupported :
       {std::string(Fields().bytes(10, "x")), std::string(Fields().bytes(14, "x")), std::string(),
        all + std::string(Fields().bytes(6, Fields().bytes(1, "k").bytes(11, "x"))),
        all + std::string(Fields().bytes(6, Fields().bytes(1, "k").bytes(13, Fields().bytes(5, "x"))))}) {
    EXPECT_EQ(read_route_match(unsupported)->kind, XdsMatch::Kind::unsupported);
  }
  EXPECT_FALSE(read_route_match(all + std::string(Fields().bytes(6, Fields().bytes(4, "x"))))) << "no name";
  std::string many = all;
  for (int i = 0; i < 17; ++i) many += Fields().bytes(6, Fields().bytes(1, "k"));
  EXPECT_FALSE(read_route_match(many));
}

TEST(XdsListener, DemandsAreSupportedOrRefused) {
  const auto of = [](std::string_view manager) {
    const auto listener = read_listener(listener_with("l", manager), "h");
    if (!listener) return listener.error().text;
    return listener->routes ? "cluster " + listener->routes->clusters.front() : "route " + listener->route_name;
  };
  const std::string rds = Fields().bytes(1, ads()).bytes(2, "r");
  EXPECT_EQ(of(Fields().bytes(3, rds).bytes(5, router())), "route r");
  EXPECT_EQ(of(Fields().bytes(4, routes_to("x", "c"))), "cluster c");
  EXPECT_EQ(of(Fields().bytes(3, rds).bytes(4, routes_to("x", "c"))), "it needs rds or route_config");
  EXPECT_EQ(of(""), "it needs rds or route_config");
  EXPECT_EQ(of(Fields().bytes(3, Fields().bytes(1, Fields().bytes(1, "/path")).bytes(2, "r"))),
            "rds.config_source is not ads or self, which is not supported");
  EXPECT_EQ(of(Fields().bytes(3, Fields().bytes(1, ads()))), "rds.route_config_name is empty");
  EXPECT_EQ(of(Fields().bytes(31, "x")), "scoped_routes is not supported");
  const Fields fault = Fields().bytes(1, "fa\nult").bytes(4, any_of("envoy.Fault", ""));
  EXPECT_EQ(of(Fields().bytes(5, fault)), "the HTTP filter 'fa\\x0ault' is not supported, and not optional");
  EXPECT_EQ(of(Fields().bytes(3, rds).bytes(5, Fields(fault).number(6, 1)).bytes(5, router())), "route r");
  const auto server_side = read_listener(Fields().bytes(1, "l"), "h");
  ASSERT_FALSE(server_side);
  EXPECT_EQ(server_side.error().text, "the listener has no api_listener that is an HttpConnectionManager");
}

TEST(XdsCluster, OnlyEndpointsOfTheStreamAreSupported) {
  EXPECT_EQ(read_cluster(eds_cluster("c"))->endpoints_name, "c");
  EXPECT_EQ(read_cluster(eds_cluster("c", "e"))->endpoints_name, "e");
  const auto dns = read_cluster(Fields().bytes(1, "c").number(2, 2));
  ASSERT_FALSE(dns);
  EXPECT_EQ(dns.error().text, "the type of the cluster is not EDS, which is not supported");
  const auto elsewhere = read_cluster(Fields().bytes(1, "c").number(2, 3));
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().text, "eds_cluster_config.eds_config is not ads or self, which is not supported");
}

std::string why_refused(const std::vector<std::string>& localities) {
  const auto read = read_load_assignment(assignment("c", localities));
  return read ? "" : read.error().text;
}

TEST(XdsLoadAssignment, WeightsOfLocalitiesAreInThoseOfEndpoints) {
  const auto read = read_load_assignment(
      assignment("c", {locality("a", 3, 0, {{"10.0.0.1", 1}, {"10.0.0.2", 1, 2}}),
                       locality("b", 1, 0, {{"10.0.0.3", 1, 5}, {"10.0.0.4", 1, 5, 1}, {"10.0.0.5", 1, 9, 2}}),
                       locality("c", 0, 0, {{"10.0.0.6", 1}}),  // Without a weight, it gets no calls.
                       locality("d", 9, 1, {{"10.0.0.7", 1, 4}, {"10.0.0.8", 1, 4}})}));
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(*read, (std::vector<Endpoint>{{.address = "10.0.0.1:1", .weight = 50'000, .zone = "a"},
                                          {.address = "10.0.0.2:1", .weight = 100'000, .zone = "a"},
                                          {.address = "10.0.0.3:1", .weight = 25'000, .zone = "b"},
                                          {.address = "10.0.0.4:1", .weight = 25'000, .zone = "b"},
                                          {.address = "10.0.0.7:1", .weight = 1, .priority = 1, .zone = "d"},
                                          {.address = "10.0.0.8:1", .weight = 1, .priority = 1, .zone = "d"}}));
}

TEST(XdsLoadAssignment, WhatCannotBeUsedIsRefused) {
  EXPECT_EQ(why_refused({locality("", 1, 0, {}), locality("", 1, 2, {})}),
            "a priority is missing: they must be 0, 1, 2 and so on");
  EXPECT_EQ(why_refused({locality("", 1, 128, {})}), "the priority 128 is above 127");
  EXPECT_EQ(why_refused({locality(std::string(65, 'z'), 1, 0, {})}), "a zone has 65 bytes, more than 64");
  const auto with_endpoint = [](std::string_view endpoint) {
    return why_refused({Fields().bytes(2, endpoint).bytes(3, wrapped(1))});
  };
  const auto at = [](std::string_view socket) {
    return std::string(Fields().bytes(1, Fields().bytes(1, Fields().bytes(1, socket))));
  };
  EXPECT_EQ(with_endpoint(""), "an endpoint has no address and port, and no pipe");
  EXPECT_EQ(with_endpoint(at(Fields().number(1, 1).bytes(2, "h"))), "an endpoint has an address of UDP");
  EXPECT_EQ(with_endpoint(at(Fields().bytes(4, "http"))), "an endpoint has a named port, which is not supported");
  EXPECT_EQ(with_endpoint(at(Fields().bytes(2, "h").number(3, 1)) + std::string(Fields().bytes(4, ""))),
            "an endpoint has the weight 0");
  const std::vector<PlayedEndpoint> half(EndpointLimits::endpoints_max / 2 + 1, {"h", 1});
  EXPECT_EQ(why_refused({locality("a", 1, 0, half)}), "");
  EXPECT_EQ(why_refused({locality("a", 1, 0, half), locality("b", 1, 0, half)}), "more than 10000 endpoints serve");
  const std::string pipe = Fields().bytes(1, Fields().bytes(1, Fields().bytes(2, Fields().bytes(1, "/run/s"))));
  const auto read = read_load_assignment(assignment("c", {Fields().bytes(2, pipe).bytes(3, wrapped(1))}));
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->front().address, "unix:/run/s");
}

std::string why_bad(std::string_view json, bool secured = false) {
  const auto read = parse_xds_bootstrap(json, secured);
  return read ? "" : read.error().text;
}

TEST(XdsBootstrap, ServersAndNodeAreRead) {
  const auto read = parse_xds_bootstrap(
      R"({"xds_servers":[{"server_uri":"dns:///10.0.0.1:1","channel_creds":[{"type":"google_default"},
          {"type":"insecure"}],"server_features":["xds_v3"]},{"server_uri":"b:2","channel_creds":[{"type":"insecure"}]}],
          "node":{"id":"i","cluster":"c","metadata":{"n":1,"t":"x","l":[true,null]},
          "locality":{"region":"r","zone":"z","sub_zone":"s"}},
          "client_default_listener_resource_name_template":"lis/%s","more":1})",
      false);
  ASSERT_TRUE(read) << read.error().text;
  EXPECT_EQ(read->servers, (std::vector<std::string>{"10.0.0.1:1", "b:2"}));
  EXPECT_EQ(read->listener_template, "lis/%s");
  const auto entry = [](std::string_view key, std::string_view value) {
    return Fields().bytes(1, key).bytes(2, value);
  };
  const std::string number = std::string("\x11\0\0\0\0\0\0\xf0\x3f", 9);
  const std::string list = Fields().bytes(6, Fields().bytes(1, Fields().number(4, 1)).bytes(1, Fields().number(1, 0)));
  const std::string metadata =
      Fields().bytes(1, entry("n", number)).bytes(1, entry("t", Fields().bytes(3, "x"))).bytes(1, entry("l", list));
  EXPECT_EQ(read->node, std::string(Fields()
                                        .bytes(1, "i")
                                        .bytes(2, "c")
                                        .bytes(3, metadata)
                                        .bytes(4, Fields().bytes(1, "r").bytes(2, "z").bytes(3, "s"))
                                        .bytes(6, "hawser")
                                        .bytes(10, "envoy.lb.does_not_support_overprovisioning")
                                        .bytes(10, "xds.config.resource-in-sotw")));
}

TEST(XdsBootstrap, MistakesAreNamed) {
  EXPECT_TRUE(why_bad("{").starts_with("xDS bootstrap: the text is malformed: "));
  EXPECT_EQ(why_bad("{}"), "xDS bootstrap: xds_servers must be a list of 1 to 32 servers");
  EXPECT_EQ(why_bad(R"({"xds_servers":[]})"), "xDS bootstrap: xds_servers must be a list of 1 to 32 servers");
  EXPECT_EQ(why_bad(R"({"xds_servers":[{"server_uri":"http://x"}]})"),
            "xDS bootstrap: server_uri must be host:port, dns:///host:port or unix:/path, and is 'http://x'");
  const std::string tls = R"({"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"tls"}]}]})";
  EXPECT_EQ(why_bad(tls),
            "xDS bootstrap: channel_creds of 'a:1' must have the type insecure, or tls with a TlsClient in "
            "XdsOptions::security");
  EXPECT_EQ(why_bad(tls, true), "");
  EXPECT_TRUE(why_bad(R"({"xds_servers":[{"server_uri":"a:1","channel_creds":[{"type":"insecure"}]}],
                          "client_default_listener_resource_name_template":"xdstp://a/%s"})")
                  .contains("xdstp: are not supported"));
}

}  // namespace
}  // namespace hawser::cluster
