#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "cluster/xds/test/xds_messages.h"
#include "cluster/xds/xds_bootstrap.h"
#include "cluster/xds/xds_cluster.h"
#include "cluster/xds/xds_route.h"

namespace hawser::cluster {
namespace {

using namespace played_xds;

const std::string path_match = Fields().bytes(2, "/shop.Cart/Add");

std::string cluster_for(const std::vector<std::string>& hosts, std::string_view host) {
  const auto route = read_route_configuration(route_configuration("r", hosts), host);
  return route ? route->cluster : route.error().text;
}

TEST(XdsRoute, TheMostSpecificDomainCounts) {
  const auto host = [](std::string_view domain) { return virtual_host(domain, {route_to(domain)}); };
  const std::vector<std::string> hosts = {host("*"),   host("*.example"), host("*.b.example"),
                                          host("a.*"), host("a.b.*"),     host("A.B.Example")};
  EXPECT_EQ(cluster_for(hosts, "a.b.example"), "A.B.Example");
  EXPECT_EQ(cluster_for(hosts, "c.b.example"), "*.b.example");
  EXPECT_EQ(cluster_for(hosts, "c.example"), "*.example");
  EXPECT_EQ(cluster_for(hosts, "a.b.c"), "a.b.*");
  EXPECT_EQ(cluster_for(hosts, "a.c"), "a.*");
  EXPECT_EQ(cluster_for(hosts, "x"), "*");
  EXPECT_EQ(cluster_for({host("a")}, "b"), "no virtual host has a domain that matches 'b'");
}

TEST(XdsRoute, OneClusterServesAllMethods) {
  const auto of = [](const std::vector<std::string>& routes) { return cluster_for({virtual_host("*", routes)}, "h"); };
  EXPECT_EQ(of({route_to("a", path_match), route_to("a")}), "a");
  EXPECT_EQ(of({route_to("a", Fields().bytes(1, "/")), route_to("b", path_match)}), "a") << "the second is not reached";
  EXPECT_EQ(of({route_to("b", path_match), route_to("a")}),
            "route 1: it leads to the cluster 'a', and an earlier one to 'b': several clusters for one name are not "
            "supported");
  const std::string no_default = "no route matches every method, by the prefix '' or '/' without other conditions";
  EXPECT_EQ(of({route_to("a", path_match)}), no_default);
  EXPECT_EQ(of({route_to("a", Fields().bytes(1, "/").bytes(6, "x"))}), no_default) << "a header is a condition";
  EXPECT_EQ(of({}), no_default);
  const std::string redirect = Fields().bytes(1, Fields().bytes(1, "")).bytes(3, "x");
  EXPECT_EQ(of({redirect}), "route 0: it does not forward calls, which is not supported");
  const auto acting = [&](std::string_view action) {
    return of({Fields().bytes(1, Fields().bytes(1, "")).bytes(2, action)});
  };
  EXPECT_EQ(acting(Fields().bytes(2, "x-cluster")), "route 0: cluster_header is not supported");
  EXPECT_EQ(acting(Fields().bytes(37, "x")), "route 0: cluster_specifier_plugin is not supported");
  EXPECT_EQ(acting(Fields().number(3, 1)), "route 0: it has no cluster");
  const auto weighted = [](std::string_view name, std::uint64_t weight) {
    return Fields().bytes(1, name).bytes(2, wrapped(weight));
  };
  EXPECT_EQ(acting(Fields().bytes(3, Fields().bytes(1, weighted("a", 0)).bytes(1, weighted("b", 7)))), "b");
  EXPECT_EQ(acting(Fields().bytes(3, Fields().bytes(1, weighted("a", 1)).bytes(1, weighted("b", 7)))),
            "route 0: weighted_clusters has several clusters with a weight, which is not supported");
}

TEST(XdsListener, DemandsAreSupportedOrRefused) {
  const auto of = [](std::string_view manager) {
    const auto listener = read_listener(listener_with("l", manager), "h");
    if (!listener) return listener.error().text;
    return listener->route ? "cluster " + listener->route->cluster : "route " + listener->route_name;
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
