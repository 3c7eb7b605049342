#include "cluster/kubernetes/kubernetes_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cluster/endpoint_text.h"
#include "cluster/kubernetes/kubernetes_name.h"

namespace hawser::cluster {
namespace {

using News = KubernetesList::News;

constexpr std::size_t event_bytes_max = std::size_t{1} << 20;

// ---- Objects, as the API server writes them ----

std::string played_endpoint(const std::string& address, const std::string& more = "") {
  return R"({"addresses":[")" + address + R"("])" + more + "}";
}
constexpr const char* draining = R"(,"conditions":{"ready":false,"serving":true,"terminating":true})";
constexpr const char* not_ready = R"(,"conditions":{"ready":false,"serving":false,"terminating":false})";

std::string slice_of(const std::string& name, const std::string& endpoints, const std::string& version = "7",
                     const std::string& family = "IPv4",
                     const std::string& ports = R"([{"name":"grpc","port":80,"protocol":"TCP"}])") {
  return R"({"kind":"EndpointSlice","metadata":{"name":")" + name + R"(","labels":{"a":"b"},"resourceVersion":")" +
         version + R"("},"addressType":")" + family + R"(","endpoints":[)" + endpoints + R"(],"ports":)" + ports + "}";
}
std::string list_of(const std::string& slices, const std::string& version = "5") {
  return R"({"kind":"EndpointSliceList","metadata":{"resourceVersion":")" + version + R"("},"items":[)" + slices + "]}";
}
std::string event_of(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}\n";
}
std::string bookmark_of(const std::string& version, bool initial_end) {
  const std::string annotations = initial_end ? R"(,"annotations":{"k8s.io/initial-events-end":"true"})" : "";
  return event_of("BOOKMARK",
                  R"({"kind":"EndpointSlice","metadata":{"resourceVersion":")" + version + "\"" + annotations + "}}");
}

KubernetesList new_list(const std::string& port = "grpc", const std::string& zone = "") {
  return KubernetesList(port, zone, event_bytes_max);
}
KubernetesList listed(const std::string& slices, const std::string& port = "grpc", const std::string& zone = "") {
  KubernetesList list = new_list(port, zone);
  const auto read = list.on_list(list_of(slices));
  EXPECT_TRUE(read) << read.error().text;
  list.begin_watch();
  return list;
}
std::string addresses_of(const KubernetesList& list) {
  const auto endpoints = list.endpoints();
  if (!endpoints) return endpoints.error().text;
  std::string addresses;
  for (const Endpoint& one : *endpoints) addresses += (addresses.empty() ? "" : " ") + one.address;
  return addresses;
}

// ---- Which endpoints serve ----

TEST(KubernetesEndpoints, SlicesAreJoined) {
  EXPECT_EQ(addresses_of(listed(slice_of("a", played_endpoint("10.0.0.2") + "," + played_endpoint("10.0.0.1")) + "," +
                                slice_of("b", played_endpoint("10.0.0.3") + "," + played_endpoint("10.0.0.1")))),
            "10.0.0.1:80 10.0.0.2:80 10.0.0.3:80");
}

TEST(KubernetesEndpoints, ReadyOnesComeFirstAndThenThoseThatServeAndTerminate) {
  const std::string drains = played_endpoint("10.0.0.1", draining);
  const std::string down = played_endpoint("10.0.0.2", not_ready);
  EXPECT_EQ(addresses_of(listed(slice_of("a", drains + "," + down + "," + played_endpoint("10.0.0.3")))),
            "10.0.0.3:80");
  EXPECT_EQ(addresses_of(listed(slice_of("a", drains + "," + down))), "10.0.0.1:80");
  EXPECT_EQ(addresses_of(listed(slice_of("a", down))), "the service has no endpoint that is ready; 1 are not");
  // A condition that is missing or null counts as ready, serving and not terminating.
  const std::string unknown = R"(,"conditions":{"ready":null,"serving":null,"terminating":null,"other":[1,{"a":2}]})";
  EXPECT_EQ(addresses_of(listed(slice_of("a", played_endpoint("10.0.0.4", unknown)))), "10.0.0.4:80");
  EXPECT_EQ(addresses_of(listed(slice_of("a", played_endpoint("10.0.0.4", R"(,"conditions":{})")))), "10.0.0.4:80");
}

TEST(KubernetesEndpoints, ARepeatedOneIsReadyIfOneSliceSaysSo) {
  EXPECT_EQ(addresses_of(listed(slice_of("a", played_endpoint("10.0.0.1", draining)) + "," +
                                slice_of("b", played_endpoint("10.0.0.1") + "," + played_endpoint("10.0.0.2")))),
            "10.0.0.1:80 10.0.0.2:80");
}

TEST(KubernetesEndpoints, APodOfBothFamiliesIsOne) {
  const std::string pod = R"(,"targetRef":{"kind":"Pod","uid":"u1"})";
  const std::string other = R"(,"targetRef":{"kind":"Pod","uid":"u2"})";
  EXPECT_EQ(addresses_of(
                listed(slice_of("a", played_endpoint("2001:db8::1", pod) + "," + played_endpoint("2001:db8::2", other),
                                "7", "IPv6") +
                       "," + slice_of("b", played_endpoint("10.0.0.1", pod)))),
            "10.0.0.1:80 [2001:db8::2]:80");
}

TEST(KubernetesEndpoints, PortsHaveNames) {
  const std::string ports = R"([{"name":"grpc","port":80},{"name":"web","port":81,"protocol":"TCP"},)"
                            R"({"name":"log","port":82,"protocol":"UDP"}])";
  const std::string slice = slice_of("a", played_endpoint("10.0.0.1"), "7", "IPv4", ports);
  EXPECT_EQ(addresses_of(listed(slice, "web")), "10.0.0.1:81");
  EXPECT_EQ(addresses_of(listed(slice, "9000")), "10.0.0.1:9000");
  EXPECT_EQ(addresses_of(listed(slice, "log")), "no endpoint has a TCP port 'log'; the ports are: 'grpc', 'web'");
  EXPECT_EQ(addresses_of(listed(slice, "")), "the service has several ports, 'grpc', 'web': write the name of one");
  EXPECT_EQ(addresses_of(listed(slice_of("a", played_endpoint("10.0.0.1"), "7", "IPv4", "null"), "")),
            "the service has no TCP port: write the number of a port of its pods");
  EXPECT_EQ(addresses_of(listed(slice_of("a", played_endpoint("10.0.0.1")), "")), "10.0.0.1:80");
  EXPECT_EQ(addresses_of(listed(slice_of("a", played_endpoint("10.0.0.1"), "7", "IPv4", "null"), "80")), "10.0.0.1:80");
}

TEST(KubernetesEndpoints, HintsGiveEndpointsToZones) {
  const auto hinted = [](const std::string& address, const std::string& zone) {
    return played_endpoint(address, R"(,"zone":"z)" + zone + R"(","hints":{"forZones":[{"name":")" + zone + R"("}]})");
  };
  const std::string slice = slice_of("a", hinted("10.0.0.1", "a") + "," + hinted("10.0.0.2", "b"));
  const std::vector<Endpoint> expected{{.address = "10.0.0.1:80", .priority = 1, .zone = "za"},
                                       {.address = "10.0.0.2:80", .zone = "zb"}};
  EXPECT_EQ(listed(slice, "grpc", "b").endpoints().value(), expected);
  // Without a hint for the own zone, or if an endpoint has none, hints have no effect.
  EXPECT_EQ(listed(slice, "grpc", "c").endpoints()->front().priority, 0U);
  EXPECT_EQ(listed(slice, "grpc", "").endpoints()->front().priority, 0U);
  EXPECT_EQ(listed(slice + "," + slice_of("b", played_endpoint("10.0.0.3")), "grpc", "b").endpoints()->front().priority,
            0U);
}

TEST(KubernetesEndpoints, OtherAddressesAreInvalid) {
  const std::string long_zone(1000, 'z');
  for (const std::string& one :
       {played_endpoint("unix:/x"), played_endpoint("a b"), played_endpoint("10.0.0.1:80"), played_endpoint("\\u0000"),
        played_endpoint(std::string(5000, 'a')), played_endpoint("10.0.0.1", R"(,"zone":")" + long_zone + "\""),
        played_endpoint("10.0.0.1", R"(,"zone":"\u0001")")}) {
    const auto endpoints = listed(slice_of("a", one)).endpoints();
    ASSERT_TRUE(endpoints) << one;
    EXPECT_NE(why_invalid(endpoints->front()), "") << one;
    EXPECT_LE(endpoints->front().address.size() + endpoints->front().zone.size(), 400U) << "it is not kept whole";
  }
  EXPECT_FALSE(listed(slice_of("a", R"({"addresses":[]})")).endpoints());
  EXPECT_FALSE(listed(slice_of("a", played_endpoint("storage.test"), "7", "FQDN")).endpoints());
}

// ---- Lists and watches ----

const std::string& whole_watch() {
  static const std::string watch =
      event_of("ADDED", slice_of("a", played_endpoint("10.0.0.1"), "3")) +
      event_of("ADDED", slice_of("b", played_endpoint("10.0.0.2"), "4")) + bookmark_of("5", true) +
      event_of("MODIFIED", slice_of("a", played_endpoint("10.0.0.3"), "6")) +
      event_of("DELETED", slice_of("b", played_endpoint("10.0.0.2"), "7")) + bookmark_of("8", false);
  return watch;
}

TEST(KubernetesWatches, BeginWithTheListOrBehindIt) {
  KubernetesList list = new_list();
  list.begin_watch();
  EXPECT_TRUE(list.listing());
  EXPECT_EQ(list.on_bytes(event_of("ADDED", slice_of("a", played_endpoint("10.0.0.1"), "3"))), News::none);
  EXPECT_FALSE(list.endpoints()) << "the list is not whole";
  EXPECT_EQ(list.on_bytes(bookmark_of("4", false)), News::none);
  EXPECT_TRUE(list.listing());
  EXPECT_EQ(list.on_bytes(bookmark_of("5", true)), News::changed);
  EXPECT_EQ(list.version(), "5");
  EXPECT_EQ(addresses_of(list), "10.0.0.1:80");
  EXPECT_EQ(list.on_bytes(event_of("MODIFIED", slice_of("a", played_endpoint("10.0.0.2"), "6"))), News::changed);
  EXPECT_EQ(list.version(), "6");
  EXPECT_EQ(list.on_bytes(bookmark_of("9", false)), News::confirmed);
  EXPECT_EQ(list.version(), "9");
  EXPECT_EQ(addresses_of(list), "10.0.0.2:80");
  // A new list replaces everything, when it is whole.
  list.forget_version();
  list.begin_watch();
  EXPECT_EQ(list.on_bytes(event_of("ADDED", slice_of("c", played_endpoint("10.0.0.3"), "3"))), News::none);
  EXPECT_EQ(addresses_of(list), "10.0.0.2:80");
  EXPECT_EQ(list.on_bytes(bookmark_of("10", true)), News::changed);
  EXPECT_EQ(addresses_of(list), "10.0.0.3:80");
}

TEST(KubernetesWatches, EventsMayBeCutAnywhere) {
  for (std::size_t cut = 0; cut <= whole_watch().size(); ++cut) {
    KubernetesList list = new_list();
    list.begin_watch();
    ASSERT_TRUE(list.on_bytes(std::string_view(whole_watch()).substr(0, cut))) << cut;
    ASSERT_TRUE(list.on_bytes(std::string_view(whole_watch()).substr(cut))) << cut;
    EXPECT_TRUE(list.between_events());
    ASSERT_EQ(list.version(), "8") << cut;
    ASSERT_EQ(addresses_of(list), "10.0.0.3:80") << cut;
  }
  KubernetesList list = new_list();
  list.begin_watch();
  for (const char one : whole_watch()) ASSERT_TRUE(list.on_bytes({&one, 1}));
  EXPECT_EQ(addresses_of(list), "10.0.0.3:80");
  EXPECT_EQ(list.on_bytes("{"), News::none);
  EXPECT_FALSE(list.between_events());
}

TEST(KubernetesWatches, AnExpiredVersionNeedsTheWholeList) {
  KubernetesList list = listed(slice_of("a", played_endpoint("10.0.0.1")));
  EXPECT_EQ(list.version(), "5");
  EXPECT_EQ(list.on_bytes(event_of("ERROR", R"({"kind":"Status","code":410,"reason":"Expired","message":"old"})")),
            News::expired);
  EXPECT_TRUE(list.listing());
  EXPECT_EQ(addresses_of(list), "10.0.0.1:80");
}

TEST(KubernetesWatches, AnErrorHasItsReason) {
  KubernetesList list = listed(slice_of("a", played_endpoint("10.0.0.1")));
  const auto error = list.on_bytes(event_of("ERROR", R"({"kind":"Status","code":500,"message":"no\u001b[2Jluck"})"));
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().text, "the watch has ended with 500: no\\x1b[2Jluck");
  EXPECT_TRUE(list.listing());
  EXPECT_EQ(addresses_of(list), "10.0.0.1:80");
}

TEST(KubernetesWatches, OtherEventsAreIgnored) {
  KubernetesList list = listed(slice_of("a", played_endpoint("10.0.0.1")));
  EXPECT_EQ(list.on_bytes("\n" + event_of("FUTURE", "[1]")), News::none);
  EXPECT_EQ(list.version(), "5");
  EXPECT_EQ(list.on_bytes(event_of("DELETED", slice_of("unknown", "", "6"))), News::changed);
  EXPECT_EQ(addresses_of(list), "10.0.0.1:80");
}

// ---- Hostile servers ----

TEST(HostileKubernetes, MalformedEventsEndTheWatch) {
  for (const std::string& wrong :
       {std::string("{"), std::string("[]"), std::string("NaN"), std::string("\xff"), std::string("{}{}"),
        event_of("ADDED", slice_of("a", "NaN")), event_of("ADDED", slice_of("", "")),
        event_of("ADDED", slice_of(std::string(300, 'n'), "")), event_of("ADDED", slice_of("a", "", "")),
        event_of("ADDED", slice_of("a", "", "1&watch=0")), event_of("ADDED", slice_of("a", "", std::string(200, '1'))),
        event_of("ADDED", slice_of("a", "", "\\u000d\\u000a")), std::string(R"({"type":"ADDED"})"),
        event_of("ADDED", slice_of("a", "", "1", "IPv4", R"([{"port":1}],"ports":[])"))}) {
    KubernetesList list = listed(slice_of("x", played_endpoint("10.0.0.1")));
    const auto news = list.on_bytes(wrong + "\n");
    ASSERT_FALSE(news) << wrong;
    EXPECT_EQ(news.error().code, ErrorCode::protocol_error) << wrong;
    EXPECT_LE(news.error().text.size(), 1000U);
    EXPECT_TRUE(std::ranges::all_of(news.error().text, [](char c) { return c >= ' ' && c < '\x7f'; })) << wrong;
    EXPECT_TRUE(list.listing());
    EXPECT_EQ(addresses_of(list), "10.0.0.1:80");
  }
}

TEST(HostileKubernetes, PortsAreNumbers) {
  for (const char* const port : {"0", "65536", "-1", "8e1", "80.0", "\"80\"", "null", "[80]", "{}"}) {
    const std::string ports = std::string(R"([{"name":"grpc","port":)") + port + "}]";
    EXPECT_FALSE(listed(slice_of("a", played_endpoint("10.0.0.1"), "7", "IPv4", ports)).endpoints()) << port;
  }
}

TEST(HostileKubernetes, AnEndlessEventEndsTheWatch) {
  KubernetesList list = listed(slice_of("a", played_endpoint("10.0.0.1")));
  const std::string part(100'000, 'x');
  Result<News> news = News::none;
  std::size_t sent = 0;
  for (; news; sent += part.size()) {
    ASSERT_LE(sent, event_bytes_max);
    news = list.on_bytes(part);
  }
  EXPECT_EQ(news.error().code, ErrorCode::limit_exceeded);
  EXPECT_EQ(addresses_of(list), "10.0.0.1:80");
}

std::string many_endpoints(std::size_t count, std::size_t from) {
  std::string endpoints;
  for (std::size_t i = from; i < from + count; ++i) {
    endpoints +=
        (endpoints.empty() ? "" : ",") + played_endpoint("10." + std::to_string(i >> 16) + "." +
                                                         std::to_string(i >> 8 & 255) + "." + std::to_string(i & 255));
  }
  return endpoints;
}

TEST(HostileKubernetes, NumbersAreBounded) {
  constexpr std::size_t most = EndpointSlice::slice_endpoints_max;
  KubernetesList few = listed(slice_of("x", played_endpoint("10.0.0.1")));
  EXPECT_FALSE(few.on_bytes(event_of("ADDED", slice_of("a", many_endpoints(most + 1, 0))))) << "a slice is too large";

  KubernetesList list = listed("");
  std::size_t slices = 0;
  Result<News> news = News::none;
  while (news && slices <= KubernetesList::entries_max / most) {
    news =
        list.on_bytes(event_of("ADDED", slice_of("a" + std::to_string(slices), many_endpoints(most, slices * most))));
    ++slices;
  }
  ASSERT_FALSE(news);
  EXPECT_EQ(news.error().code, ErrorCode::limit_exceeded);
  EXPECT_EQ(slices, KubernetesList::entries_max / most + 1);
  EXPECT_EQ(list.endpoints()->size(), KubernetesList::entries_max) << "what was known stays";

  std::string empty_slices;
  for (std::size_t i = 0; i <= KubernetesSlices::slices_max; ++i) {
    empty_slices += (i == 0 ? "" : ",") + (R"({"metadata":{"name":"s)" + std::to_string(i) + R"("}})");
  }
  const auto read = new_list().on_list(list_of(empty_slices));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::limit_exceeded);
}

TEST(HostileKubernetes, MalformedListsAreRefused) {
  for (const std::string& wrong :
       {std::string(), std::string("null"), std::string("{}"), std::string(R"({"items":[]})"), list_of("", ""),
        list_of("[]"), list_of("1"), list_of(slice_of("a", "{]")), list_of("") + "{}"}) {
    const auto read = new_list().on_list(wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_EQ(read.error().code, ErrorCode::protocol_error) << wrong;
  }
}

// ---- Names ----

TEST(KubernetesNames, HaveAServiceAndPerhapsANamespaceAndAPort) {
  for (const char* const text : {"/storage.shop:grpc", "storage.shop:grpc", "storage.shop:grpc/"}) {
    const auto name = parse_kubernetes_name(text);
    ASSERT_TRUE(name) << text;
    EXPECT_EQ(name->service, "storage");
    EXPECT_EQ(name->name_space, "shop");
    EXPECT_EQ(name->port, "grpc");
  }
  EXPECT_EQ(parse_kubernetes_name("a.b:65535").value().port, "65535");
  const auto service = parse_kubernetes_name("/storage");
  ASSERT_TRUE(service);
  EXPECT_EQ(service->name_space + service->port, "");
  for (const char* const wrong :
       {"",     "/",       "//",     ":",          "a:",      "a.",        ".a",
        "a..b", "a.b.c",   "A.b",    "a b",        "a.b:c:d", "a/b",       "-a",
        "a-",   "a.b?x=1", "a.b%2f", "a.b:grpc/x", "a.b:0",   "a.b:65536", "a.b:99999999999999999999"}) {
    const auto name = parse_kubernetes_name(wrong);
    ASSERT_FALSE(name) << wrong;
    EXPECT_EQ(name.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_FALSE(parse_kubernetes_name(std::string(64, 'a')));
}

}  // namespace
}  // namespace hawser::cluster
