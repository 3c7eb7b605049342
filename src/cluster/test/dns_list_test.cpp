#include "cluster/dns_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cluster/dns_config.h"
#include "hawser/loop.h"
#include "hawser/service_config.h"
#include "transport/tcp/test/name_server_testing.h"

namespace hawser::cluster {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ReplyKind = DnsReply::Kind;

// An answer with one question for "x", as a name server writes it.
class PlayedAnswer {
 public:
  explicit PlayedAnswer(unsigned answers) {
    add({0, 1, 0x81, 0x80, 0, 1, 0, static_cast<int>(answers), 0, 0, 0, 0});
    add({1, 'x', 0, 0, 33, 0, 1});
  }
  PlayedAnswer& add(const std::vector<int>& bytes) {
    for (const int byte : bytes) bytes_.push_back(static_cast<std::byte>(byte));
    return *this;
  }
  // A record of the question's name.
  PlayedAnswer& record(int type, int ttl, const std::vector<int>& data) {
    add({0xc0, 12, 0, type, 0, 1, 0, 0, ttl >> 8, ttl & 255, 0, static_cast<int>(data.size())});
    return add(data);
  }
  Bytes bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

TEST(DnsAnswers, HaveRecordsAndTheShortestTimeToLive) {
  const PlayedAnswer addresses =
      PlayedAnswer(3).record(5, 7, {1, 'y', 0xc0, 12}).record(1, 60, {192, 0, 2, 1}).record(1, 60, {192, 0, 2, 2});
  const auto four = parse_dns_answer(addresses.bytes(), dns_a);
  ASSERT_TRUE(four) << four.error().text;
  ASSERT_EQ(four->records.size(), 2U);
  EXPECT_EQ(four->records[1].host, "192.0.2.2");
  EXPECT_EQ(four->ttl_seconds, 7U) << "the alias lives shorter";
  const PlayedAnswer sixes = PlayedAnswer(1).record(28, 9, {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
  EXPECT_EQ(parse_dns_answer(sixes.bytes(), dns_aaaa).value().records.at(0).host, "[2001:db8::1]");
  const PlayedAnswer services = PlayedAnswer(1).record(33, 300, {0, 5, 0, 9, 31, 144, 1, 'a', 0xc0, 12});
  const auto srv = parse_dns_answer(services.bytes(), dns_srv);
  ASSERT_TRUE(srv) << srv.error().text;
  const DnsRecord& record = srv->records.at(0);
  EXPECT_EQ(record.host, "a.x");
  EXPECT_EQ(record.port, 8080);
  EXPECT_EQ(record.priority, 5);
  EXPECT_EQ(record.weight, 9);
}

TEST(DnsAnswers, MalformedOnesAreRefused) {
  const PlayedAnswer good = PlayedAnswer(1).record(33, 300, {0, 5, 0, 9, 31, 144, 1, 'a', 0xc0, 12});
  for (std::size_t bytes = 0; bytes < good.bytes().size(); ++bytes) {
    EXPECT_FALSE(parse_dns_answer(good.bytes().first(bytes), dns_srv)) << bytes;
  }
  const std::vector<int> loop{0, 5, 0, 9, 31, 144, 0xc0, 31 + 6};  // A pointer to itself.
  EXPECT_FALSE(parse_dns_answer(PlayedAnswer(1).record(33, 300, loop).bytes(), dns_srv));
  const PlayedAnswer beyond = PlayedAnswer(1).record(33, 300, {0, 5, 0, 9, 31, 144}).add({1, 'a', 0xc0, 12});
  EXPECT_FALSE(parse_dns_answer(beyond.bytes(), dns_srv)) << "the name lies behind the data";
  EXPECT_FALSE(parse_dns_answer(PlayedAnswer(1).record(1, 300, {1, 2, 3}).bytes(), dns_a));
  EXPECT_FALSE(parse_dns_answer(PlayedAnswer(2).record(1, 300, {1, 2, 3, 4}).bytes(), dns_a));
}

// Each step of a chain of pointers costs time. An answer of 64 KiB has room for thousands of names that begin one.
TEST(DnsAnswers, ChainsOfPointersAreBounded) {
  // The data of the first record, which has another type, is a chain: its pointer number n leads to number n - 1.
  const auto answer_with = [](int pointers) {
    constexpr int chain = 31;  // The place of the data of the first record.
    std::vector<int> data{1, 'a', 0};
    int last = chain;
    for (int i = 1; i < pointers; ++i) {
      const int at = chain + static_cast<int>(data.size());
      data.insert(data.end(), {0xc0 | last >> 8, last & 255});
      last = at;
    }
    PlayedAnswer answer(2);
    answer.add(
        {0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 9, static_cast<int>(data.size()) >> 8, static_cast<int>(data.size()) & 255});
    answer.add(data);
    return answer.record(33, 9, {0, 5, 0, 9, 31, 144, 0xc0 | last >> 8, last & 255});
  };
  const auto longest = parse_dns_answer(answer_with(127).bytes(), dns_srv);
  ASSERT_TRUE(longest) << longest.error().text;
  EXPECT_EQ(longest->records.at(0).host, "a");
  EXPECT_FALSE(parse_dns_answer(answer_with(128).bytes(), dns_srv));
}

TEST(DnsNames, HaveAHostAndPerhapsAServer) {
  EXPECT_EQ(parse_dns_name("storage.test:80").value().host, "storage.test");
  EXPECT_EQ(parse_dns_name("/storage.test:80").value().port, "80");
  EXPECT_EQ(parse_dns_name("127.0.0.1:53/storage.test:80").value().servers, "127.0.0.1:53");
  EXPECT_EQ(parse_dns_name("_rpc._tcp.test").value().port, "");
  EXPECT_EQ(parse_dns_name("_rpc._tcp.test").value().host, "_rpc._tcp.test");
  for (const char* const wrong : {"", "storage.test", "storage:0", "10.0.0.1:80", "[::1]:80", "unix:/x", "_a b"}) {
    EXPECT_FALSE(parse_dns_name(wrong)) << wrong;
  }
}

DnsReply found_records(std::vector<DnsRecord> records, std::uint32_t ttl_seconds = 60) {
  return {.kind = ReplyKind::found, .answer = {.records = std::move(records), .ttl_seconds = ttl_seconds}};
}
DnsReply missing_records(ReplyKind kind) { return {.kind = kind, .may_exist_elsewhere = true, .why = "SERVFAIL"}; }

std::vector<std::string> addresses_in(const DnsList& list) {
  std::vector<std::string> addresses;
  for (const Endpoint& endpoint : list.endpoints()) addresses.push_back(endpoint.address);
  return addresses;
}

TEST(DnsLists, AskAgainWhenTheShortestTimeToLiveHasPassed) {
  DnsList list("80", seconds(1), minutes(5));
  list.begin({"x"});
  EXPECT_EQ(list.types(), (std::vector<int>{dns_aaaa, dns_a}));
  EXPECT_EQ(list.on_replies({found_records({{"[::2]"}}, 60), found_records({{"b"}, {"a"}}, 30)}),
            DnsList::Step::listed);
  EXPECT_EQ(addresses_in(list), (std::vector<std::string>{"[::2]:80", "a:80", "b:80"}));
  EXPECT_EQ(list.pause(), seconds(30));
  list.begin({"x"});
  EXPECT_EQ(list.on_replies({missing_records(ReplyKind::absent), found_records({{"a"}}, 0)}), DnsList::Step::listed);
  EXPECT_EQ(addresses_in(list), std::vector<std::string>{"a:80"});
  EXPECT_EQ(list.pause(), seconds(1));
  list.begin({"x"});
  list.on_replies({missing_records(ReplyKind::absent), found_records({{"a"}}, 100'000)});
  EXPECT_EQ(list.pause(), minutes(5));
}

TEST(DnsLists, AFailureKeepsWhatItConcerns) {
  DnsList list("80", seconds(1), seconds(5));
  list.begin({"x"});
  list.on_replies({found_records({{"[::2]"}}), found_records({{"a"}})});
  list.begin({"x"});
  EXPECT_EQ(list.on_replies({missing_records(ReplyKind::failed), found_records({{"b"}})}), DnsList::Step::listed);
  EXPECT_EQ(addresses_in(list), (std::vector<std::string>{"[::2]:80", "b:80"}));
  for (const Duration pause : {seconds(1), seconds(2), seconds(4), seconds(5), seconds(5)}) {
    list.begin({"x"});
    EXPECT_EQ(list.on_replies({missing_records(ReplyKind::failed), missing_records(ReplyKind::absent)}),
              DnsList::Step::failed);
    EXPECT_EQ(list.pause(), pause);
  }
  EXPECT_EQ(list.error().text, "x: SERVFAIL");
  EXPECT_EQ(addresses_in(list), (std::vector<std::string>{"[::2]:80", "b:80"}));
}

TEST(DnsLists, TheSearchGoesOnBehindAFailure) {
  DnsList list("80", seconds(1), seconds(5));
  list.begin({"x.a", "x.b", "x"});
  EXPECT_EQ(list.on_replies({missing_records(ReplyKind::failed), missing_records(ReplyKind::failed)}),
            DnsList::Step::ask);
  EXPECT_EQ(list.name(), "x.b");
  EXPECT_EQ(list.on_replies({found_records({{"[::2]"}}), found_records({{"b"}})}), DnsList::Step::listed);
  // Another domain is another host.
  list.begin({"x.a", "x.b", "x"});
  EXPECT_EQ(list.on_replies({missing_records(ReplyKind::failed), found_records({{"a"}})}), DnsList::Step::listed);
  EXPECT_EQ(addresses_in(list), std::vector<std::string>{"a:80"});
}

TEST(DnsLists, PrioritiesOfServicesAreRanks) {
  DnsList list("", seconds(1), seconds(5));
  list.begin({"_x"});
  EXPECT_EQ(list.on_replies({found_records({{"b", 2, 1000, 0}, {"a", 1, 10, 7}, {"", 9, 5, 1}})}),
            DnsList::Step::listed);
  const std::vector<Endpoint> expected{{.address = "a:1", .weight = 7, .priority = 1},
                                       {.address = "b:2", .weight = 1, .priority = 2}};
  EXPECT_EQ(list.endpoints(), expected);
}

TEST(DnsLists, TargetsOfServicesAreNamesOfHosts) {
  DnsList list("", seconds(1), seconds(5));
  list.begin({"_x"});
  list.on_replies({found_records({{"unix:/x", 1, 1, 0}, {"a b", 1, 1, 0}, {"A-1_b.c", 1, 1, 0}})});
  EXPECT_EQ(addresses_in(list), std::vector<std::string>{"A-1_b.c:1"});
}

TEST(DnsLists, LongPausesDoNotOverflow) {
  DnsList list("80", hours(3), hours(24));
  for (int failures = 0; failures < 25; ++failures) list.fail_round("x");
  EXPECT_EQ(list.pause(), hours(24));
}

TEST(DnsAnswers, TextsHaveParts) {
  const PlayedAnswer texts = PlayedAnswer(2).record(16, 60, {2, 'a', 'b', 0, 1, 'c'}).record(16, 60, {0});
  const auto answer = parse_dns_answer(texts.bytes(), dns_txt);
  ASSERT_TRUE(answer) << answer.error().text;
  ASSERT_EQ(answer->records.size(), 2U);
  EXPECT_EQ(answer->records[0].host, "abc");
  EXPECT_EQ(answer->records[1].host, "");
  EXPECT_FALSE(parse_dns_answer(PlayedAnswer(1).record(16, 60, {2, 'a'}).bytes(), dns_txt));
  EXPECT_FALSE(parse_dns_answer(PlayedAnswer(1).record(16, 60, {1, 'a', 1}).add({'x'}).bytes(), dns_txt));
}

Result<std::string> chosen(const std::string& choices, unsigned lot = 50) {
  return choose_dns_config({{.host = "other"}, {.host = "grpc_config=" + choices}}, {.host_name = "me", .lot = lot});
}

TEST(DnsConfigs, TheFirstChoiceForTheClientCounts) {
  const std::string a = R"({"serviceConfig":{"a":[1,{}]}})";
  EXPECT_EQ(chosen("[" + a + "]").value(), R"({"a":[1,{}]})");
  EXPECT_EQ(chosen("[]").value(), "");
  EXPECT_EQ(choose_dns_config({}, {}).value(), "");
  EXPECT_EQ(choose_dns_config({{.host = "grpc_confi"}}, {}).value(), "");
  const auto takes = [&](const std::string& condition, unsigned lot = 50) {
    const auto config = chosen("[{" + condition + R"(,"serviceConfig":{"b":1}},)" + a + "]", lot);
    EXPECT_TRUE(config) << condition << config.error().text;
    return config && *config == R"({"b":1})";
  };
  for (const char* const fits :
       {R"("clientLanguage":["go","C++"])", R"("clientLanguage":["hawser"])", R"("clientLanguage":[])",
        R"("clientHostName":["you","me"])", R"("clientHostName":["me"])", R"("percentage":100)", R"("percentage":51)",
        R"("percentage":51,"clientLanguage":["c++"],"clientHostName":["me"])"}) {
    EXPECT_TRUE(takes(fits)) << fits;
  }
  for (const char* const other :
       {R"("clientLanguage":["go"])", R"("clientLanguage":"c++")", R"("clientLanguage":[["c++"],1])",
        R"("clientHostName":["ME"])", R"("percentage":50)", R"("percentage":0)", R"("percentage":-1)",
        R"("percentage":"100")", R"("percentage":1e2)", R"("percentage":99999999999)", R"("region":["x"])",
        R"("percentage":51,"clientHostName":["you"])"}) {
    EXPECT_FALSE(takes(other)) << other;
  }
  EXPECT_FALSE(takes(R"("percentage":0)", 0));
  EXPECT_TRUE(takes(R"("percentage":1)", 0));
  EXPECT_TRUE(takes(R"("percentage":100)", 99));
}

TEST(DnsConfigs, HostileTextsAreRefused) {
  for (const std::string& wrong :
       {std::string(), std::string("{}"), std::string("1"), std::string("null"), std::string("\"x\""),
        std::string("[1]"), std::string("[{}"), std::string("[{}]x"), std::string(R"([{"serviceConfig":{"a":NaN}}])"),
        std::string("[{\"a\":\"\x01\"}]"), "[" + std::string(60'000, '['),
        R"([{"serviceConfig":{"a":1},"serviceConfig":{}}])" + std::string(60'000, ' '), "[{}" + [] {
          std::string many;
          for (int i = 0; i < 20'000; ++i) many += ",{}";
          return many;
        }() + "]"}) {
    const auto config = chosen(wrong);
    ASSERT_FALSE(config) << wrong.substr(0, 100);
    EXPECT_LE(config.error().text.size(), 500U);
  }
  EXPECT_FALSE(choose_dns_config({{.host = "grpc_config=[]"}, {.host = "grpc_config=[]"}}, {}));
  EXPECT_EQ(chosen(R"([{"serviceConfig":1},{"clientLanguage":["c++"]}])").value(), "");
}

// Names whose server the test plays.
class PlayedDns : public ::testing::Test {
 protected:
  void open(const std::string& name) {
    auto opened = Naming::open(
        loop, name,
        {dns_naming(
            {.servers = server.options().servers, .refresh_min = milliseconds(1), .refresh_max = milliseconds(5)})});
    ASSERT_TRUE(opened) << opened.error().text;
    naming = std::move(*opened);
  }
  template <class Reached>
  void run_until(Reached reached) {
    loop.run([](Loop& on, Reached& done) -> Task<void> {
      while (!done()) co_await on.sleep(milliseconds(1));
    }(loop, reached));
  }
  const NamingState& state() const { return naming->state(); }

  static constexpr int server_failure = 2;
  Loop loop;
  transport::PlayedNameServer server{loop};
  std::unique_ptr<Naming> naming;
};

TEST_F(PlayedDns, AddressesChange) {
  server.answers = {{dns_a, {"192.0.2.2", "192.0.2.1"}}, {dns_aaaa, {"2001:db8::1"}}};
  open("dns:storage.test.:80");
  run_until([&] { return state().version == 1; });
  const std::vector<Endpoint> expected{
      {.address = "192.0.2.1:80"}, {.address = "192.0.2.2:80"}, {.address = "[2001:db8::1]:80"}};
  EXPECT_EQ(state().endpoints, expected);
  const int asked = server.questions;
  server.answers[dns_a] = {"192.0.2.1", "192.0.2.2"};
  run_until([&] { return server.questions >= asked + 6; });
  EXPECT_EQ(state().version, 1U) << "another order is not a change";
  server.answers = {{dns_a, {"192.0.2.3"}}, {dns_aaaa, {}}};
  run_until([&] { return state().version >= 2 && state().endpoints.size() == 1; });
  EXPECT_EQ(state().endpoints.front().address, "192.0.2.3:80");
}

// Memory is exhausted while a list is passed on.
TEST_F(PlayedDns, ARoundWithoutMemoryIsFollowedByTheNext) {
  class Sink final : public NamingSink {
   public:
    void on_endpoints(std::vector<Endpoint>) override {
      if (++lists == 1) throw std::bad_alloc();
    }
    void on_confirmed() override {}
    void on_failure(Error) override {}
    int lists = 0;
  };
  server.answers = {{dns_a, {"192.0.2.1"}}, {dns_aaaa, {}}};
  const NamingScheme scheme = dns_naming({.servers = server.options().servers, .refresh_min = milliseconds(1)});
  auto source = scheme.open("storage.test.:80");
  ASSERT_TRUE(source) << source.error().text;
  Sink sink;
  (*source)->start(loop, sink);
  run_until([&] { return sink.lists == 2; });
}

TEST_F(PlayedDns, TheLastGoodListSurvivesFailures) {
  server.answers = {{dns_a, {"192.0.2.1"}}, {dns_aaaa, {}}};
  open("dns://" + server.options().servers + "/storage.test.:80");
  run_until([&] { return state().version == 1; });
  server.failures = {{"storage.test", server_failure}};
  run_until([&] { return state().error.has_value(); });
  EXPECT_TRUE(state().error->text.contains("storage.test")) << state().error->text;
  EXPECT_EQ(state().endpoints.size(), 1U);
  server.failures.clear();
  server.answers = {{dns_a, {}}, {dns_aaaa, {}}};  // The name does not exist.
  run_until([&] { return state().error && state().error->text.contains("not found"); });
  EXPECT_EQ(state().endpoints.size(), 1U);
  server.answers = {{dns_a, {"192.0.2.2"}}, {dns_aaaa, {}}};
  run_until([&] { return !state().error; });
  EXPECT_EQ(state().endpoints.front().address, "192.0.2.2:80");
}

TEST_F(PlayedDns, TheSearchGoesOnBehindADomainWhoseServersFail) {
  setenv("LOCALDOMAIN", "a.test b.test", 1);
  setenv("RES_OPTIONS", "ndots:5", 1);
  server.answers = {{dns_a, {}}, {dns_aaaa, {}}};
  server.failures = {{"storage.a.test", server_failure}};
  server.answers_of["storage.b.test"] = {{dns_a, {"192.0.2.7"}}, {dns_aaaa, {}}};
  open("dns:storage:80");
  run_until([&] { return state().version == 1; });
  unsetenv("LOCALDOMAIN");
  unsetenv("RES_OPTIONS");
  EXPECT_EQ(state().endpoints.front().address, "192.0.2.7:80");
}

TEST_F(PlayedDns, ANameMayHaveAServiceConfig) {
  const std::string padding(200, ' ');  // The text has several parts.
  const auto text = [&](const std::string& time) {
    return "grpc_config=[{\"serviceConfig\":{\"methodConfig\":[{\"name\":[{}]," + padding + "\"timeout\":\"" + time +
           "\"}]}}]";
  };
  server.answers = {{dns_a, {"192.0.2.1"}}, {dns_aaaa, {}}, {dns_txt, {}}};
  auto& config = server.answers_of["_grpc_config.storage.test"];
  config[dns_txt] = {"other", text("2s")};
  open("dns:storage.test.:80");
  const auto timeout = [&] {
    const MethodConfig* const found = state().service_config == nullptr ? nullptr : state().service_config->find("a/b");
    return found == nullptr ? Duration::zero() : found->timeout.value_or(Duration::zero());
  };
  run_until([&] { return timeout() == seconds(2); });
  EXPECT_EQ(state().service_config_error, "");
  config[dns_txt] = {text("3s")};
  run_until([&] { return timeout() == seconds(3); });
  config[dns_txt] = {text("never")};
  run_until([&] { return state().service_config_error.contains("timeout"); });
  EXPECT_EQ(timeout(), seconds(3)) << "the last good one stays";
  server.failures["_grpc_config.storage.test"] = server_failure;
  run_until([&] { return state().service_config_error.contains("no answer"); });
  EXPECT_EQ(timeout(), seconds(3));
  EXPECT_FALSE(state().error) << "the list does not depend on it";
  server.failures.clear();
  config[dns_txt] = {};
  run_until([&] { return state().service_config == nullptr; });
  EXPECT_EQ(state().service_config_error, "");
}

TEST_F(PlayedDns, AServiceConfigIsNotAskedForIfItIsOff) {
  server.answers = {{dns_a, {"192.0.2.1"}}, {dns_aaaa, {}}};
  auto opened = Naming::open(loop, "dns:storage.test.:80",
                             {dns_naming({.servers = server.options().servers,
                                          .refresh_min = milliseconds(1),
                                          .refresh_max = milliseconds(5),
                                          .service_config = false})});
  ASSERT_TRUE(opened) << opened.error().text;
  run_until([&] { return server.questions >= 6; });
  for (const std::string& name : server.names) EXPECT_EQ(name, "storage.test");
}

// A name server that does not know TXT records, and does not answer.
TEST_F(PlayedDns, TheListDoesNotWaitForTheServiceConfig) {
  server.answers = {{dns_a, {"192.0.2.1"}}, {dns_aaaa, {}}};
  open("dns:storage.test.:80");
  run_until([&] { return state().version == 1; });
  server.answers[dns_a] = {"192.0.2.2"};
  run_until([&] { return state().version == 2; });
  EXPECT_GE(std::ranges::count(server.names, "_grpc_config.storage.test"), 1);
}

TEST_F(PlayedDns, MayEndWhileAQuestionIsOpen) {
  open("dns:storage.test.:80");  // The server does not answer.
  run_until([&] { return server.questions > 0; });
  naming.reset();
  run_until([] { return true; });
}

}  // namespace
}  // namespace hawser::cluster
