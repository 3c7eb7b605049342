#include "hawser/consul.h"

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "hawser/cluster_client.h"
#include "tests/consul/played_agent.h"
#include "tests/naming_fixture.h"
#include "tests/testing.h"

// Names of services of an agent of Consul that the test plays.
namespace hawser {
namespace {

using namespace testing_tools;

class Consul : public NamingFixture {
 protected:
  Consul() {
    for (const char* const name : {"CONSUL_HTTP_ADDR", "CONSUL_HTTP_TOKEN", "CONSUL_HTTP_TOKEN_FILE"}) unsetenv(name);
    options.agent = agent.address();
    options.connect_timeout = patience;
    options.request_timeout = patience;
    options.retry_interval = 20ms;  // Longer than the pauses of until(), so that no error is missed.
    options.retry_max = 40ms;
    agent.put("10.0.0.1");
    agent.put("10.0.0.2");
  }
  std::unique_ptr<Naming> open(const std::string& name = "consul:///storage") {
    auto opened = Naming::open(loop, name, {consul_naming(options)});
    EXPECT_TRUE(opened) << error_of(opened);
    return std::move(*opened);
  }
  std::string refused(const std::string& name) {
    const auto opened = Naming::open(loop, name, {consul_naming(options)});
    return opened ? std::string("it is accepted") : opened.error().text;
  }
  std::string write_file(const std::string& name, const std::string& text) const {
    const std::string path = (folder.path() / name).string();
    {
      std::ofstream file(path + ".new");
      file << text;
    }
    EXPECT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
    return path;
  }

  static constexpr const char* both = "10.0.0.1:80 10.0.0.2:80";
  TemporaryFolder folder;
  PlayedConsul agent;
  ConsulOptions options;
};

TEST_F(Consul, InstancesComeAndGo) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  agent.put("10.0.0.3");
  EXPECT_TRUE(becomes(*naming, "10.0.0.1:80 10.0.0.2:80 10.0.0.3:80"));
  agent.put("10.0.0.1", "critical");
  EXPECT_TRUE(becomes(*naming, "10.0.0.2:80 10.0.0.3:80"));
  agent.remove("10.0.0.2");
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
  const std::vector<std::string> asked = agent.requests();
  EXPECT_FALSE(asked.front().contains("index="));
  EXPECT_TRUE(asked.back().contains("index=")) << asked.back();
  EXPECT_TRUE(asked.back().starts_with("wait=60s"));
}

TEST_F(Consul, AnAnswerWithoutAChangeConfirmsTheList) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  const Time confirmed = naming->state().confirmed;
  EXPECT_TRUE(until([&] {
    agent.end_waits();
    return naming->state().confirmed > confirmed;
  }));
  EXPECT_EQ(naming->state().version, 1U);
}

TEST_F(Consul, TheLastGoodListSurvivesAnOutage) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  agent.set({.status = 500});
  EXPECT_TRUE(fails_with(*naming, "the agent has refused with 500: it does not work"));
  EXPECT_EQ(addresses_of(*naming), both);
  agent.set({});
  EXPECT_TRUE(becomes(*naming, both)) << "the first answer after the outage comes at once";
  EXPECT_EQ(naming->state().version, 1U);
  agent.put("10.0.0.3");
  EXPECT_TRUE(becomes(*naming, "10.0.0.1:80 10.0.0.2:80 10.0.0.3:80"));
}

TEST_F(Consul, AServiceWithoutInstancesReplacesNoList) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  agent.put("10.0.0.1", "critical");
  agent.put("10.0.0.2", "critical");
  EXPECT_TRUE(fails_with(*naming, "no instance of the service serves; 2 have a critical check, or the weight 0"));
  EXPECT_FALSE(naming->state().endpoints.empty());
  agent.put("10.0.0.3");
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
  const auto other = open("consul:///other");
  EXPECT_TRUE(fails_with(*other, "Consul has no instance of the service, or the token may not see it"));
  agent.set({.hidden = true});
  EXPECT_TRUE(fails_with(*other, "which needs service:read and node:read"));
}

TEST_F(Consul, AnIndexThatGoesBackIsAskedForAnew) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  agent.remove("10.0.0.2");
  agent.set_index(3);
  EXPECT_TRUE(until([&] {
    agent.end_waits();
    return addresses_of(*naming) == "10.0.0.1:80";
  }));
  agent.put("10.0.0.4");  // The index 4, which is less than the one of the first answer.
  EXPECT_TRUE(becomes(*naming, "10.0.0.1:80 10.0.0.4:80"));
}

TEST_F(Consul, WithoutAnIndexOrALeaderTheListIsUsedAndTheReasonIsShown) {
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  agent.remove("10.0.0.1");
  agent.set({.led = false});
  EXPECT_TRUE(fails_with(*naming, "the servers of Consul have no leader"));
  EXPECT_EQ(addresses_of(*naming), "10.0.0.2:80");
  agent.remove("10.0.0.2");
  agent.put("10.0.0.3");
  agent.set({.indexed = false});
  EXPECT_TRUE(fails_with(*naming, "the answer has no X-Consul-Index"));
  EXPECT_EQ(addresses_of(*naming), "10.0.0.3:80");
  agent.set({});
  EXPECT_TRUE(becomes(*naming, "10.0.0.3:80"));
}

TEST_F(Consul, ASilentAgentIsLeft) {
  options.wait_time = 1s;
  options.request_timeout = 100ms;
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  agent.set({.silent = true});
  EXPECT_TRUE(until([&] { return naming->state().error.has_value(); }));
  EXPECT_EQ(addresses_of(*naming), both);
}

TEST_F(Consul, ParametersOfTheNameArePassedOn) {
  const auto naming = open("consul://" + agent.address() + "/storage?tag=a%20b&tag=c&dc=dc2&stale");
  ASSERT_TRUE(becomes(*naming, both));
  EXPECT_EQ(agent.requests().front(), "wait=60s&tag=a%20b&tag=c&dc=dc2&stale");
}

TEST_F(Consul, TokensAreReadForEachRequest) {
  options.token_file = write_file("token", "first\n");
  agent.set({.token = "first"});
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  agent.set({.token = "second"});
  EXPECT_TRUE(fails_with(*naming, "has refused with 403: ACL not found; its token needs service:read and node:read"));
  write_file("token", "second\n");
  EXPECT_TRUE(becomes(*naming, both));
  options.token_file = "";
  setenv("CONSUL_HTTP_TOKEN", "second", 1);
  EXPECT_TRUE(becomes(*open(), both)) << "the token is that of the environment";
  setenv("CONSUL_HTTP_TOKEN_FILE", write_file("other", "third").c_str(), 1);
  EXPECT_TRUE(fails_with(*open(), "403"));
}

TEST_F(Consul, TheEnvironmentNamesTheAgent) {
  setenv("CONSUL_HTTP_ADDR", agent.address().c_str(), 1);
  options.agent = "";
  EXPECT_TRUE(becomes(*open(), both));
  ServerOptions served;
  served.listen = "unix:" + (folder.path() / "socket").string();
  PlayedConsul local(std::move(served));
  local.put("10.0.0.9");
  setenv("CONSUL_HTTP_ADDR", ("unix://" + (folder.path() / "socket").string()).c_str(), 1);
  EXPECT_TRUE(becomes(*open(), "10.0.0.9:80"));
}

TEST_F(Consul, HostileAgentsAreBounded) {
  options.message_bytes_max = 100'000;
  const auto naming = open();
  ASSERT_TRUE(becomes(*naming, both));
  for (const auto& [body, text] :
       std::vector<std::pair<std::string, const char*>>{{std::string(100'001, ' '), "body_bytes_max"},
                                                        {"{}", "something that is not a list"},
                                                        {"[{\"Service\":{\"Port\":NaN}}]", "invalid JSON"},
                                                        {std::string(90'000, '['), "invalid JSON"},
                                                        {"\x1b[2J", "invalid JSON"}}) {
    agent.set({.body = body});
    EXPECT_TRUE(fails_with(*naming, text)) << text;
    EXPECT_EQ(addresses_of(*naming), both);
  }
  agent.set({.status = 404});
  EXPECT_TRUE(fails_with(*naming, "404"));
}

TEST_F(Consul, NamesAndOptionsAreChecked) {
  EXPECT_TRUE(refused("consul:///").contains("write consul://agent:port/service"));
  EXPECT_TRUE(refused("consul:///a/b").contains("write consul://agent:port/service"));
  EXPECT_TRUE(refused("consul:///..").contains("write consul://agent:port/service"));
  EXPECT_TRUE(refused("consul:///a b").contains("write consul://agent:port/service"));
  EXPECT_TRUE(refused("consul:///a#b").contains("write consul://agent:port/service"));
  EXPECT_TRUE(refused("consul://10.0.0.1:8500").contains("no '/' between the agent and the service"));
  EXPECT_TRUE(refused("consul://agent/a").contains("the agent must be host:port"));
  EXPECT_TRUE(refused("consul://me:secret@agent:1/a").contains("the agent must be host:port"));
  EXPECT_TRUE(refused("consul:///a?index=1").contains("the parameters are cached"));
  EXPECT_TRUE(refused("consul:///a?token=1").contains("the parameters are cached"));
  options.wait_time = 0s;
  EXPECT_TRUE(refused("consul:///a").contains("wait_time"));
  options = {.request_timeout = forever};
  EXPECT_TRUE(refused("consul:///a").contains("request_timeout"));
  options = {.agent = "ftp://a"};
  EXPECT_TRUE(refused("consul:///a").contains("ConsulOptions::agent"));
}

std::string whereabouts_in_consul() { return "here"; }

TEST_F(Consul, ClientsCallInstances) {
  ServerOptions served;
  served.loop.log = no_log();
  Server server(served);
  server.register_handler<whereabouts_in_consul>();
  const Result<void> started = server.start();
  ASSERT_TRUE(started) << error_of(started);
  const std::string port = server.address().substr(server.address().rfind(':') + 1);
  agent.remove("10.0.0.1");
  agent.remove("10.0.0.2");
  agent.put("127.0.0.1", "warning", port);
  ClusterOptions cluster;
  cluster.naming.push_back(consul_naming(options));
  loop.run([](Loop& on, ClusterOptions with) -> Task<void> {
    auto client = ClusterClient::create(on, "consul:///storage", std::move(with));
    REQUIRE_OK(client);
    const Result<std::string> reply = co_await (*client)->call<whereabouts_in_consul>({.timeout = patience});
    REQUIRE_OK(reply);
    EXPECT_EQ(*reply, "here");
  }(loop, std::move(cluster)));
  server.stop();
}

}  // namespace
}  // namespace hawser
