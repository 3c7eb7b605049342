#include "transport/tcp/resolver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/tcp/search_domains.h"
#include "transport/tcp/tcp_network.h"
#include "transport/tcp/test/name_server_testing.h"
#include "transport/tcp/test/tcp_testing.h"

namespace hawser::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ResolverTest : public TcpLoopTest {
 protected:
  void SetUp() override {
    TcpLoopTest::SetUp();
    if (IsSkipped()) return;
    server.emplace(loop);
    names.emplace(server->options());
  }
  std::vector<std::string> all() {
    std::vector<std::string> texts;
    while (const std::optional<SocketAddress> one = list.next()) texts.push_back(to_string(*one));
    return texts;
  }

  AddressList list{loop};
  std::optional<PlayedNameServer> server;
  std::optional<NameService> names;
};
INSTANTIATE_TEST_SUITE_P(Kinds, ResolverTest, exec::every_loop(), exec::name_of);

TEST_P(ResolverTest, AsksForBothFamilies) {
  server->answers = {{type_a, {"192.0.2.1", "192.0.2.2"}}, {type_aaaa, {"2001:db8::1"}}};
  const Resolver resolver(loop, {"service.test", "80"}, list, *names);
  EXPECT_TRUE(list.empty()) << "asking must not block";
  ASSERT_TRUE(until([&] { return list.completed(); }));
  std::vector<std::string> found = all();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0], "[2001:db8::1]:80");
}

// As the C library: the domains come before the name, and a server that fails for one domain does not end the search.
class SearchTest : public ResolverTest {
 protected:
  void SetUp() override {
    setenv("LOCALDOMAIN", "a.test b.test", 1);
    setenv("RES_OPTIONS", "ndots:5", 1);
    ResolverTest::SetUp();
    if (IsSkipped()) return;
    server->answers = {{type_a, {}}, {type_aaaa, {}}};
  }
  void TearDown() override {
    unsetenv("LOCALDOMAIN");
    unsetenv("RES_OPTIONS");
    ResolverTest::TearDown();
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, SearchTest, exec::every_loop(), exec::name_of);

TEST_P(SearchTest, GoesOnBehindADomainWhoseServersFail) {
  constexpr int server_failure = 2;
  server->failures = {{"host.a.test", server_failure}};
  server->answers_of["host.b.test"] = {{type_a, {"192.0.2.7"}}, {type_aaaa, {}}};
  const Resolver resolver(loop, {"host", "80"}, list, *names);
  ASSERT_TRUE(until([&] { return list.completed(); }));
  EXPECT_EQ(all(), std::vector<std::string>{"192.0.2.7:80"});
  EXPECT_EQ(std::ranges::count(server->names, "host"), 0) << "the name itself comes last, and was not necessary";
}

// The names of two domains are two hosts: their addresses are not mixed.
TEST_P(SearchTest, BothFamiliesAreOfOneDomain) {
  server->answers_of["host.a.test"] = {{type_a, {"192.0.2.6"}}, {type_aaaa, {}}};
  server->answers_of["host.b.test"] = {{type_a, {"192.0.2.7"}}, {type_aaaa, {"2001:db8::7"}}};
  const Resolver resolver(loop, {"host", "80"}, list, *names);
  ASSERT_TRUE(until([&] { return list.completed(); }));
  EXPECT_EQ(all(), std::vector<std::string>{"192.0.2.6:80"});
  EXPECT_EQ(std::ranges::count(server->names, "host.b.test"), 0);
}

TEST_P(SearchTest, ANameThatEndsWithADotHasNoDomain) {
  server->answers_of["host"] = {{type_a, {"192.0.2.8"}}, {type_aaaa, {}}};
  const Resolver resolver(loop, {"host.", "80"}, list, *names);
  ASSERT_TRUE(until([&] { return list.completed(); }));
  EXPECT_EQ(all(), std::vector<std::string>{"192.0.2.8:80"});
  EXPECT_EQ(std::ranges::count(server->names, "host"), static_cast<std::ptrdiff_t>(server->names.size()));
}

TEST_P(SearchTest, ReportsTheFailureAfterTheLastName) {
  server->failures = {{"host.a.test", 2}};
  const Resolver resolver(loop, {"host", "80"}, list, *names);
  ASSERT_TRUE(until([&] { return list.completed(); }));
  EXPECT_TRUE(all().empty());
  EXPECT_GE(std::ranges::count(server->names, "host.b.test"), 2);
  EXPECT_GE(std::ranges::count(server->names, "host"), 2);
}

// A server that does not answer for IPv6 does not delay IPv4.
TEST_P(ResolverTest, OneFamilyDoesNotWaitForTheOther) {
  server->answers = {{type_a, {"192.0.2.1"}}};
  const Resolver resolver(loop, {"service.test", "80"}, list, *names);
  ASSERT_TRUE(until([&] { return !list.empty(); }));
  EXPECT_FALSE(list.completed());
  EXPECT_EQ(all(), std::vector<std::string>{"192.0.2.1:80"});
}

TEST_P(ResolverTest, ANameThatIsNotSaysSo) {
  server->answers = {{type_a, {}}, {type_aaaa, {}}};
  const Resolver resolver(loop, {"service.test", "80"}, list, *names);
  ASSERT_TRUE(until([&] { return list.completed(); }));
  EXPECT_TRUE(list.empty());
  ASSERT_TRUE(list.error());
  EXPECT_NE(list.error()->text.find("cannot resolve 'service.test'"), std::string::npos) << list.error()->text;
}

TEST_P(ResolverTest, SomeNamesNeedNoQuestion) {
  for (const std::string host : {"localhost", "a.LOCALHOST", "LocalHost."}) {
    AddressList own(loop);
    const Resolver resolver(loop, {host, "80"}, own, *names);
    EXPECT_TRUE(own.completed()) << host;
    EXPECT_FALSE(own.empty()) << host;
  }
  const Resolver resolver(loop, {"no-such-host.invalid", "80"}, list, *names);
  EXPECT_TRUE(list.completed());
  EXPECT_TRUE(list.empty());
  turns(3);
  EXPECT_EQ(server->questions, 0);
}

TEST_P(ResolverTest, EndsWithItsQuestionsOpen) {
  for (int i = 0; i < 5; ++i) {
    AddressList own(loop);
    {
      const Resolver resolver(loop, {"service.test", "80"}, own, *names);
      turns(i);
    }
    turns(3);
    EXPECT_FALSE(own.completed());
  }
}

TEST_P(ResolverTest, ConnectingIncludesResolvingInItsTime) {
  TcpNetwork network(server->options());
  const Time start = loop.poller().now();
  const auto stream = loop.run(network.connect(loop, "service.test:80", milliseconds(60)));
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, ErrorCode::unavailable);
  EXPECT_NE(stream.error().text.find("service.test"), std::string::npos);
  EXPECT_GE(loop.poller().now() - start, milliseconds(60));
  EXPECT_TRUE(until([&] { return server->questions > 0; }));
}

// One channel asks for all names of a loop. It is kept for the next name.
TEST_P(ResolverTest, ALoopHasOneChannel) {
  server->answers = {{type_a, {"192.0.2.1"}}, {type_aaaa, {}}};
  const std::shared_ptr<DnsChannel> channel = *names->channel(loop);
  constexpr int count = 100;
  std::deque<AddressList> lists;
  std::deque<Resolver> resolvers;
  for (int i = 0; i < count; ++i) {
    resolvers.emplace_back(loop, HostPort{"service" + std::to_string(i) + ".test", "80"}, lists.emplace_back(loop),
                           *names);
  }
  EXPECT_EQ(*names->channel(loop), channel);
  EXPECT_EQ(channel->open_questions(), 2U * count);
  ASSERT_TRUE(
      until([&] { return std::all_of(lists.begin(), lists.end(), [](auto& one) { return one.completed(); }); }));
  for (AddressList& one : lists) EXPECT_FALSE(one.empty());
  EXPECT_EQ(channel->open_questions(), 0U);
  resolvers.clear();
  EXPECT_EQ(*names->channel(loop), channel);
}

// More names than may be asked for at the same time: the others wait, and names that are withdrawn make room.
TEST_P(ResolverTest, QuestionsAreBounded) {
  const std::shared_ptr<DnsChannel> channel = *names->channel(loop);
  constexpr std::size_t count = DnsChannel::open_max / 2 + 50;
  std::deque<AddressList> lists;
  std::deque<std::optional<Resolver>> resolvers;
  for (std::size_t i = 0; i < count; ++i) {
    resolvers.emplace_back().emplace(loop, HostPort{"service" + std::to_string(i) + ".test", "80"},
                                     lists.emplace_back(loop), *names);
  }
  EXPECT_EQ(channel->open_questions(), DnsChannel::open_max);
  EXPECT_EQ(*names->channel(loop), channel);
  // Nobody waits for many of the channel's questions any more. The next name does not wait for them.
  for (std::size_t i = 0; i < DnsChannel::withdrawn_max; ++i) resolvers[i].reset();
  const std::shared_ptr<DnsChannel> other = *names->channel(loop);
  EXPECT_NE(other, channel);
  server->answers = {{type_a, {"192.0.2.1"}}, {type_aaaa, {}}};
  const Resolver resolver(loop, {"service.test", "80"}, list, *names);
  ASSERT_TRUE(until([&] { return list.completed(); }));
  EXPECT_FALSE(list.empty());
  resolvers.clear();
  EXPECT_EQ(channel->open_questions(), 0U) << "all withdrawn";
  for (AddressList& one : lists) EXPECT_FALSE(one.completed() && one.empty() && !one.error());
}

// The loop destroys its references to the channel when it ends.
TEST(DnsChannel, EndsWithItsLoop) {
  NameService names({.servers = "127.0.0.1:9"});
  std::weak_ptr<DnsChannel> channel;
  {
    Loop loop({.log = no_log()});
    AddressList list(loop);
    {
      const Resolver resolver(loop, {"service.test", "80"}, list, names);
      channel = *names.channel(loop);
    }
    EXPECT_FALSE(channel.expired());
  }
  EXPECT_TRUE(channel.expired());
}

TEST(HostsFile, IsReadAgainWhenItHasChanged) {
  const std::string path = ::testing::TempDir() + "hawser_hosts_" + std::to_string(getpid());
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  const auto texts = [](const std::vector<SocketAddress>& addresses) {
    std::vector<std::string> all;
    for (const SocketAddress& one : addresses) all.push_back(to_string(one));
    return all;
  };
  using Texts = std::vector<std::string>;
  std::string text =
      "# 192.0.2.9 commented\n192.0.2.1\tone  ONE.test # two\n2001:db8::1 one\n\nnonsense one\n192.0.2.2 other one";
  write(text);
  HostsFile hosts(path);
  EXPECT_EQ(texts(hosts.find("one", 80)), (Texts{"192.0.2.1:80", "[2001:db8::1]:80", "192.0.2.2:80"}));
  EXPECT_EQ(texts(hosts.find("One.Test.", 1)), Texts{"192.0.2.1:1"});
  for (const char* absent : {"two", "commented", "192.0.2.1", ""})
    EXPECT_TRUE(hosts.find(absent, 80).empty()) << absent;
  for (int i = 0; i < 100; ++i) static_cast<void>(hosts.find("one", 80));
  EXPECT_EQ(hosts.reads(), 1U);
  for (int i = 0; i < 1000; ++i) text += "\n192.0.2." + std::to_string(i % 250) + " many";
  write(text);
  EXPECT_EQ(hosts.find("many", 80).size(), AddressList::addresses_max);
  EXPECT_EQ(hosts.reads(), 2U);
  std::remove(path.c_str());
  EXPECT_TRUE(hosts.find("one", 80).empty());
  EXPECT_TRUE(HostsFile("/no/such/file").find("one", 80).empty());
}

// While no descriptor is free, what is known stays, and afterwards the file is read.
TEST(HostsFile, IsReadWhenADescriptorIsFreeAgain) {
  const std::string path = ::testing::TempDir() + "hawser_hosts_later_" + std::to_string(getpid());
  const auto write = [&](const char* text) { std::ofstream(path) << text; };
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto without_descriptors = [&](auto action) {
    const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    action();
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  };
  // It also makes the text of an error: a sanitizer examines the object that does, for which it needs descriptors.
  EXPECT_FALSE(read_search_domains("/")) << "a folder";
  write("192.0.2.1 one\n");
  HostsFile hosts(path);
  without_descriptors([&] {
    EXPECT_TRUE(hosts.find("one", 80).empty());
    EXPECT_FALSE(read_search_domains(path)) << "a file that cannot be read is not an empty one";
  });
  EXPECT_EQ(hosts.find("one", 80).size(), 1U);
  EXPECT_TRUE(read_search_domains(path));
  EXPECT_TRUE(read_search_domains("/no/such/file"));
  write("192.0.2.1 one\n192.0.2.2 two\n");
  without_descriptors([&] { EXPECT_EQ(hosts.find("one", 80).size(), 1U); });
  EXPECT_EQ(hosts.find("two", 80).size(), 1U);
  std::remove(path.c_str());
}

TEST(SearchDomains, AreThoseOfTheLastLine) {
  const auto domains = [](std::string_view text, std::string_view host = "host.own.test") {
    return search_domains_of(text, {}, host).domains;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(domains("nameserver 192.0.2.1\nsearch a.test\tb.test  # c.test\n"), (Texts{"a.test", "b.test"}));
  EXPECT_EQ(domains("domain a.test b.test"), Texts{"a.test"}) << "the last line has no end";
  EXPECT_EQ(domains("search a.test\ndomain b.test\n"), Texts{"b.test"});
  EXPECT_EQ(domains("search .\r\n"), Texts{"."});
  EXPECT_EQ(domains("#search a.test\n; search b.test\nsearchc.test\n"), Texts{"own.test"});
  EXPECT_EQ(domains(""), Texts{"own.test"});
  for (const char* host : {"host", "host.", ""}) EXPECT_EQ(domains("", host), Texts{}) << host;
  EXPECT_EQ(domains("search a.test\nsearch \ndomain\n"), Texts{"a.test"}) << "lines without a value do not count";
}

TEST(SearchDomains, VariablesReplaceThem) {
  const std::string_view text = "search a.test\noptions rotate ndots:2\noptions timeout:1\n";
  using Texts = std::vector<std::string>;
  const auto with = [&](SearchVariables variables) { return search_domains_of(text, variables, "host.own.test"); };
  EXPECT_EQ(with({}).domains, Texts{"a.test"});
  EXPECT_EQ(with({.local_domain = "b.test c.test"}).domains, (Texts{"b.test", "c.test"}));
  EXPECT_EQ(with({.local_domain = ""}).domains, Texts{});
  EXPECT_EQ(with({}).dots_min, 2U);
  EXPECT_EQ(with({.res_options = "ndots:5"}).dots_min, 5U);
  EXPECT_EQ(with({.res_options = "ndots:99"}).dots_min, 15U);
  for (const char* invalid : {"ndots:", "ndots:-1", "ndots:2x", "ndots", ""}) {
    EXPECT_EQ(with({.res_options = invalid}).dots_min, 2U) << invalid;
  }
  EXPECT_EQ(search_domains_of("", {}, "").dots_min, 1U);
}

TEST(SearchDomains, AreReadFromAFile) {
  const std::string path = ::testing::TempDir() + "hawser_search_" + std::to_string(getpid());
  std::ofstream(path) << "search a.test\noptions ndots:3\n";
  const SearchDomains found = read_search_domains(path).value();
  std::remove(path.c_str());
  EXPECT_EQ(found.domains, std::vector<std::string>{"a.test"});
  EXPECT_EQ(found.dots_min, 3U);
  EXPECT_EQ(read_search_domains(path)->dots_min, 1U) << "the file is absent";
}

// The name has two addresses, and nothing answers at the first.
TEST_P(ResolverTest, ADeadAddressDoesNotFailTheConnect) {
  struct Accepting final : AcceptSink {
    void accepted(std::unique_ptr<Stream> stream) override { streams.push_back(std::move(stream)); }
    std::vector<std::unique_ptr<Stream>> streams;
  } accepting;
  TcpNetwork network(server->options());
  const auto listener = network.listen(loop, "127.0.0.1:0", accepting);
  ASSERT_TRUE(listener);
  const std::string port = (*listener)->address().substr((*listener)->address().rfind(':') + 1);
  // The same port at another address, with a full queue.
  const SocketAddress dead = resolve({"127.0.0.2", port}, false, false).value().front();
  const Descriptor deaf(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(deaf.get(), dead.get(), dead.size), 0);
  ASSERT_EQ(::listen(deaf.get(), 0), 0);
  std::vector<Descriptor> fill;
  for (int i = 0; i < 4; ++i) {
    fill.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    ::connect(fill.back().get(), dead.get(), dead.size);
  }
  for (const std::vector<std::string>& addresses :
       {std::vector<std::string>{"127.0.0.2", "127.0.0.1"}, std::vector<std::string>{"127.0.0.1", "127.0.0.2"}}) {
    server->answers = {{type_a, addresses}, {type_aaaa, {}}};
    const auto stream = loop.run(network.connect(loop, "service.test:" + port, seconds(30)));
    ASSERT_TRUE(stream) << stream.error().describe();
    EXPECT_EQ((*stream)->peer(), "127.0.0.1:" + port);
  }
}

}  // namespace
}  // namespace hawser::transport
