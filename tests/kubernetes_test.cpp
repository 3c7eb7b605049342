#include "hawser/kubernetes.h"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/cluster_client.h"
#include "tests/kubernetes/played_api.h"
#include "tests/naming_fixture.h"
#include "tests/testing.h"

// Names of services of an API server that the test plays.
namespace hawser {
namespace {

using namespace testing_tools;
using Lists = PlayedKubernetes::Lists;

class Kubernetes : public NamingFixture {
 protected:
  Kubernetes() {
    options.server = "http://" + api.address();
    options.connect_timeout = patience;
    options.request_timeout = patience;
    options.retry_interval = 20ms;  // Longer than the pauses of until(), so that no error is missed.
    options.retry_max = 40ms;
    api.put("a", {"10.0.0.1", "10.0.0.2"});
  }
  std::unique_ptr<Naming> open(const std::string& name = "kubernetes:///storage.shop:grpc") {
    auto opened = Naming::open(loop, name, {kubernetes_naming(options)});
    EXPECT_TRUE(opened) << error_of(opened);
    return std::move(*opened);
  }
  void write_file(const std::string& name, const std::string& text) const {
    const std::string path = (folder.path() / name).string();
    {
      std::ofstream file(path + ".new");
      file << text;
    }
    ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
  }

  static constexpr const char* both = "10.0.0.1:80 10.0.0.2:80";
  TemporaryFolder folder;
  PlayedKubernetes api;
  KubernetesOptions options;
};

TEST_F(Kubernetes, PodsComeAndGo) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  api.put("b", {"10.0.0.3", "10.0.0.1"});
  EXPECT_TRUE(becomes(*naming, "10.0.0.1:80 10.0.0.2:80 10.0.0.3:80"));
  api.put("a", {"10.0.0.4"});
  EXPECT_TRUE(becomes(*naming, "10.0.0.1:80 10.0.0.3:80 10.0.0.4:80"));
  api.remove("b");
  EXPECT_TRUE(becomes(*naming, "10.0.0.4:80"));
  EXPECT_EQ(api.requests().size(), 1U) << "one watch has all";
  const Time confirmed = naming->state().confirmed;
  EXPECT_TRUE(until([&] {
    api.bookmark();
    return naming->state().confirmed > confirmed;
  }));
}

TEST_F(Kubernetes, EventsComeInSmallParts) {
  api.set({.part_bytes = 7});
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  api.put("a", {"10.0.0.3"});
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
}

TEST_F(Kubernetes, AServerThatRefusesStreamedListsIsAskedForAList) {
  api.set({.lists = Lists::refused});
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  api.put("a", {"10.0.0.3"});
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
  EXPECT_EQ(api.count("sendInitialEvents"), 1U);
  EXPECT_EQ(api.requests().size(), 3U) << "a refused watch, a list and a watch";
}

TEST_F(Kubernetes, AServerThatDoesNotKnowStreamedListsIsAskedForAList) {
  api.set({.lists = Lists::ignored});
  options.request_timeout = 300ms;
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  api.put("a", {"10.0.0.3"});
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
}

TEST_F(Kubernetes, AServerThatDoesNotAnswerIsAskedAgain) {
  api.set({.lists = Lists::silent});
  options.request_timeout = 300ms;
  const auto naming = open();
  EXPECT_TRUE(fails_with(*naming, "the API server has not answered")) << "silence does not say what it can do";
  api.set({});
  EXPECT_TRUE(becomes(*naming, both));
}

TEST_F(Kubernetes, AWatchThatHasEndedGoesOnFromItsVersion) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  for (int i = 3; i < 6; ++i) {
    api.end_watches();
    api.put("a", {"10.0.0." + std::to_string(i)});
    EXPECT_TRUE(becomes(*naming, "10.0.0." + std::to_string(i) + ":80"));
  }
  EXPECT_EQ(api.count("sendInitialEvents"), 1U);
  EXPECT_EQ(api.count("watch=1"), api.requests().size()) << "no list was needed";
}

TEST_F(Kubernetes, AnExpiredVersionLeadsToTheWholeList) {
  for (const bool by_event : {false, true}) {
    for (const Lists lists : {Lists::streamed, Lists::refused}) {
      api.set({.lists = lists, .gone_by_event = by_event});
      api.put("a", {"10.0.0.1"});
      const auto naming = open();
      ASSERT_TRUE(becomes(*naming, "10.0.0.1:80"));
      const std::size_t requests = api.requests().size();
      api.put("b", {"10.0.0.2"});
      api.remove("a");
      api.compact();
      api.end_watches();
      EXPECT_TRUE(becomes(*naming, "10.0.0.2:80"));
      EXPECT_TRUE(until([&] { return api.requests().size() > requests; }));
      api.put("b", {"10.0.0.3"});
      EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
      api.remove("b");
    }
  }
}

TEST_F(Kubernetes, AVersionThatExpiresWithTheFirstListEndsNoStreamedLists) {
  api.set({.lists = Lists::expired});
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both)) << "the list is asked for";
  api.set({});
  api.put("a", {"10.0.0.3"});
  api.compact();
  api.end_watches();
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
  EXPECT_TRUE(until([&] { return api.count("sendInitialEvents") >= 2; }));
}

TEST_F(Kubernetes, ARefusalWithoutAReasonIsReported) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  api.set({.status = 403, .without_reason = true});
  api.end_watches();
  EXPECT_TRUE(
      fails_with(*naming, "has refused with 403: it gives no reason; its account needs the verbs list and watch"));
  api.set({});
  api.end_watches();
  EXPECT_TRUE(becomes(*naming, both));
}

TEST_F(Kubernetes, TheLastGoodListSurvivesAnOutage) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  const Time confirmed = naming->state().confirmed;
  api.set({.status = 503});
  api.end_watches();
  EXPECT_TRUE(fails_with(*naming, "has refused with 503: it does not work"));
  EXPECT_EQ(addresses_of(*naming), both);
  api.put("a", {"10.0.0.3"});
  EXPECT_TRUE(until([&] { return naming->state().age(loop.now()) > 0ms; }));
  EXPECT_GE(naming->state().confirmed, confirmed);
  EXPECT_EQ(naming->state().version, 1U);
  api.set({});
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
}

TEST_F(Kubernetes, AnEmptyServiceReplacesNoList) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  api.remove("a");
  EXPECT_TRUE(fails_with(*naming, "no endpoint that is ready"));
  EXPECT_EQ(addresses_of(*naming), both);
  api.put("b", {"10.0.0.3"});
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
  const auto other = open("kubernetes:///storage.shop:web");
  EXPECT_TRUE(fails_with(*other, "no endpoint has a TCP port 'web'; the ports are: 'grpc'"));
}

TEST_F(Kubernetes, TokensAndNamespacesAreRead) {
  options.token_file = (folder.path() / "token").string();
  options.account_folder = folder.path().string();
  write_file("token", "first\n");
  write_file("namespace", "shop");
  api.set({.token = "first"});
  const auto naming = open("kubernetes:///storage");
  ASSERT_TRUE(becomes(*naming, both));
  // The token is replaced, and the old one is not accepted any more.
  api.set({.token = "second"});
  api.end_watches();
  EXPECT_TRUE(fails_with(*naming, "has refused with 401: Unauthorized; its token is not accepted"));
  write_file("token", "second\n");
  EXPECT_TRUE(becomes(*naming, both));
  api.put("a", {"10.0.0.3"});
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
}

TEST_F(Kubernetes, FilesOfTheAccountAreChecked) {
  options.account_folder = folder.path().string();
  const auto naming = open("kubernetes:///storage");
  EXPECT_TRUE(fails_with(*naming, "namespace does not exist"));
  write_file("namespace", "a/../b");
  EXPECT_TRUE(fails_with(*naming, "does not have the name of a namespace"));
  write_file("namespace", std::string(100'000, 'a'));
  EXPECT_TRUE(fails_with(*naming, "has more than the limit of a token"));
  options.token_file = options.account_folder + "/token";
  write_file("token", "a\r\nX-Other: b");
  write_file("namespace", "shop");
  const auto other = open("kubernetes:///storage");
  EXPECT_TRUE(fails_with(*other, "control character"));
  EXPECT_TRUE(becomes(*naming, both)) << "without a token";
  for (const std::string& one : api.requests()) EXPECT_FALSE(one.contains("..")) << one;
}

TEST_F(Kubernetes, HostileServersAreBounded) {
  options.message_bytes_max = 100'000;
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  for (const auto& [bytes, text] : std::vector<std::pair<std::string, const char*>>{
           {std::string(100'001, 'x'), "more than message_bytes_max (100000) bytes"},
           {R"({"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":NaN}}})"
            "\n",
            "invalid JSON"},
           {"{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"\\u001b[2J\"}}\n", "500: \\x1b[2J"},
           {std::string("\x1b[2J\n"), "invalid JSON"}}) {
    api.send(bytes);
    EXPECT_TRUE(fails_with(*naming, text)) << text;
    EXPECT_EQ(addresses_of(*naming), both);
    EXPECT_TRUE(becomes(*naming, both)) << "the list is read again";
  }
  // A list that is too long for the limit.
  std::vector<std::string> many;
  for (int i = 0; i < 5000; ++i) many.push_back("10.1." + std::to_string(i >> 8) + "." + std::to_string(i & 255));
  for (const Lists lists : {Lists::streamed, Lists::refused}) {
    api.set({.lists = lists});
    const auto other = open();
    ASSERT_TRUE(becomes(*other, both));
    api.put("b", many);
    EXPECT_TRUE(fails_with(*other, lists == Lists::refused ? "body_bytes_max" : "message_bytes_max"));
    EXPECT_EQ(addresses_of(*other), both);
    api.remove("b");
    api.end_watches();
  }
}

TEST_F(Kubernetes, ASilentServerIsLeft) {
  options.watch_time = 1s;
  options.request_timeout = 300ms;
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  EXPECT_TRUE(until([&] { return naming->state().error.has_value(); })) << "the server does not end the watch";
  EXPECT_TRUE(becomes(*naming, both));
}

TEST_F(Kubernetes, OptionsAreChecked) {
  const auto refused = [this](const char* name) {
    const auto opened = Naming::open(loop, name, {kubernetes_naming(options)});
    return opened ? std::string("it is accepted") : opened.error().text;
  };
  EXPECT_TRUE(refused("kubernetes:///a.b.c").contains("write kubernetes:///service.namespace:port"));
  options.watch_time = 0s;
  EXPECT_TRUE(refused("kubernetes:///a.b").contains("watch_time"));
  options = {.request_timeout = forever};
  EXPECT_TRUE(refused("kubernetes:///a.b").contains("request_timeout"));
  options = {.server = "10.0.0.1:443"};
  EXPECT_TRUE(refused("kubernetes:///a.b").contains("KubernetesOptions::server"));
  options = {};
  unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_TRUE(refused("kubernetes:///a.b").contains("KUBERNETES_SERVICE_HOST"));
}

std::string whereabouts() { return "here"; }

TEST_F(Kubernetes, ClientsCallPods) {
  ServerOptions served;
  served.loop.log = no_log();
  Server server(served);
  server.register_handler<whereabouts>();
  const Result<void> started = server.start();
  ASSERT_TRUE(started) << error_of(started);
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  api.put("a", {"127.0.0.1"});
  ClusterOptions cluster;
  cluster.naming.push_back(kubernetes_naming(options));
  loop.run([](Loop& on, std::string name, ClusterOptions with) -> Task<void> {
    auto client = ClusterClient::create(on, name, std::move(with));
    REQUIRE_OK(client);
    const Result<std::string> reply = co_await (*client)->call<whereabouts>({.timeout = patience});
    REQUIRE_OK(reply);
    EXPECT_EQ(*reply, "here");
  }(loop, "kubernetes:///storage.shop:" + port, std::move(cluster)));
  server.stop();
}

}  // namespace
}  // namespace hawser
