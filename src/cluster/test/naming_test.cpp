#include "hawser/naming.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "cluster/endpoint_text.h"
#include "cluster/list_check.h"
#include "cluster/test/hand_name.h"
#include "hawser/loop.h"
#include "hawser/naming_routes.h"

namespace hawser::cluster {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

Error error_of(std::string_view list) {
  const Result<std::vector<Endpoint>> endpoints = parse_endpoint_list(list);
  EXPECT_FALSE(endpoints) << list;
  return endpoints ? Error() : endpoints.error();
}

TEST(EndpointText, AListHasAddressesAndAttributes) {
  const auto endpoints = parse_endpoint_list("a:1;weight=3;zone=eu-1;priority=2;shard=7,[::1]:80,unix:/run/x,unix:@y");
  ASSERT_TRUE(endpoints) << endpoints.error().text;
  ASSERT_EQ(endpoints->size(), 4U);
  EXPECT_EQ(endpoints->at(0),
            (Endpoint{.address = "a:1", .weight = 3, .priority = 2, .zone = "eu-1", .tags = {{"shard", "7"}}}));
  EXPECT_EQ(endpoints->at(1), Endpoint{.address = "[::1]:80"});
  EXPECT_EQ(endpoints->at(2).address, "unix:/run/x");
  EXPECT_EQ(endpoints->at(3).address, "unix:@y");
}

TEST(EndpointText, MalformedEntriesAreRefusedWithTheirText) {
  EXPECT_NE(error_of("a").text.find("'a' is not host:port"), std::string::npos);
  for (const char* const wrong : {",a:1",
                                  "a:0",
                                  "a:65536",
                                  "a:x",
                                  ":1",
                                  "::1:80",
                                  "a b:1",
                                  "a:1;weight",
                                  "a:1;=x",
                                  "a:1;weight=0",
                                  "a:1;weight=nan",
                                  "a:1;weight=-1",
                                  "a:1;weight=1e3",
                                  "a:1;weight=4294967297",
                                  "a:1;weight=1000001",
                                  "a:1;priority=128",
                                  "unix:",
                                  "a:1;zone=\x01",
                                  "a:1;tag=\x7f",
                                  "\xff:1"}) {
    EXPECT_EQ(error_of(wrong).code, ErrorCode::invalid_argument) << wrong;
  }
  EXPECT_NE(error_of("a\n:1").text.find("a\\x0a:1"), std::string::npos) << "control characters are escaped";
  EXPECT_EQ(error_of(std::string(300, 'a') + ":1").code, ErrorCode::invalid_argument);
}

TEST(EndpointText, CountsAreBounded) {
  std::string tags = "a:1";
  for (std::size_t i = 0; i <= EndpointLimits::tags_max; ++i) tags += ";t" + std::to_string(i) + "=1";
  EXPECT_EQ(error_of(tags).code, ErrorCode::invalid_argument);
  std::string many;
  for (std::size_t i = 0; i < EndpointLimits::endpoints_max; ++i) many += "a:1,";
  EXPECT_TRUE(parse_endpoint_list(many));
  EXPECT_EQ(error_of(many + "b:1").code, ErrorCode::limit_exceeded);
}

TEST(EndpointText, AFileHasLinesAndComments) {
  const auto endpoints = parse_endpoint_lines("# servers\r\n\n a:1\tweight=2  zone=x\r\nb:2");
  ASSERT_TRUE(endpoints) << endpoints.error().text;
  ASSERT_EQ(endpoints->size(), 2U);
  EXPECT_EQ(endpoints->at(0), (Endpoint{.address = "a:1", .weight = 2, .zone = "x"}));
  const auto wrong = parse_endpoint_lines("a:1\n\nb");
  ASSERT_FALSE(wrong);
  EXPECT_TRUE(wrong.error().text.starts_with("line 3: ")) << wrong.error().text;
}

class NamingByHand : public ::testing::Test {
 protected:
  NamingByHand() {
    auto opened = Naming::open(loop, "hand:x", {hand.scheme()}, [this] { ++changes; });
    naming = std::move(*opened);
  }
  const NamingState& state() const { return naming->state(); }
  void wait(Duration duration) {
    loop.run([](Loop& on, Duration until) -> Task<void> { co_await on.sleep(until); }(loop, duration));
  }

  Loop loop;
  HandName hand;
  int changes = 0;
  std::unique_ptr<Naming> naming;
};

TEST_F(NamingByHand, VersionsCountChanges) {
  EXPECT_EQ(state().version, 0U);
  hand.sink->on_endpoints({{.address = "a:1"}, {.address = "b:1"}});
  hand.sink->on_endpoints({{.address = "a:1"}, {.address = "b:1"}});
  EXPECT_EQ(state().version, 1U);
  hand.sink->on_endpoints({{.address = "a:1", .weight = 2}, {.address = "b:1"}});
  EXPECT_EQ(state().version, 2U);
  EXPECT_EQ(changes, 2);
}

TEST_F(NamingByHand, TheLastGoodListSurvivesAnOutageAndAges) {
  hand.sink->on_endpoints({{.address = "a:1"}});
  wait(milliseconds(3));
  hand.sink->on_failure(Error::of_call(ErrorCode::unavailable, "no answer"));
  EXPECT_EQ(state().endpoints.size(), 1U);
  ASSERT_TRUE(state().error);
  EXPECT_EQ(state().error->text, "hand:x: no answer");
  EXPECT_GE(state().age(loop.now()), milliseconds(2));
  hand.sink->on_confirmed();
  EXPECT_FALSE(state().error);
  EXPECT_EQ(state().age(loop.now()), Duration::zero());
}

TEST_F(NamingByHand, HostileListsAreRefusedAndTheGoodOneStays) {
  hand.sink->on_endpoints({{.address = "a:1"}});
  hand.sink->on_endpoints(std::vector<Endpoint>(1'000'000, Endpoint{.address = "a:1"}));
  ASSERT_TRUE(state().error);
  EXPECT_NE(state().error->text.find("1000000 endpoints, more than 10000; the list before it stays"), std::string::npos)
      << state().error->text;
  hand.sink->on_confirmed();
  EXPECT_TRUE(state().error) << "the list that was refused is the one that the source calls current";
  hand.sink->on_endpoints({});
  hand.sink->on_endpoints({{.address = ""}, {.address = "x"}});
  EXPECT_EQ(state().lists_refused, 3U);
  EXPECT_EQ(state().endpoints, std::vector<Endpoint>{{.address = "a:1"}});
  EXPECT_EQ(changes, 1);
  hand.sink->on_endpoints({{.address = "a:1"}});
  EXPECT_FALSE(state().error);
}

TEST_F(NamingByHand, MalformedAndRepeatedEndpointsAreDropped) {
  hand.sink->on_endpoints(
      {{.address = "a:1", .weight = 2}, {.address = "a:1"}, {.address = "b:1\n"}, {.address = "c:1"}});
  ASSERT_EQ(state().endpoints.size(), 2U);
  EXPECT_EQ(state().endpoints[0].weight, 2U);
  EXPECT_EQ(state().endpoints[1].address, "c:1");
  EXPECT_EQ(state().endpoints_dropped, 2U);
  EXPECT_NE(state().drop_reason.find("b:1\\x0a"), std::string::npos) << state().drop_reason;
}

// Runs the loop until `reached` is true. The limit of the test program ends an endless wait.
template <class Reached>
void run_until(Loop& loop, Reached reached) {
  loop.run([](Loop& on, Reached& done) -> Task<void> {
    while (!done()) {
      co_await on.sleep(milliseconds(1));
    }
  }(loop, reached));
}

std::vector<Endpoint> many_endpoints(const std::string& host, std::size_t count) {
  std::vector<Endpoint> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back({.address = host + std::to_string(i) + ":1"});
  return list;
}

// A long list is checked in steps, between which the loop does other work and the list before it stays.
class LongLists : public NamingByHand {
 protected:
  static constexpr std::size_t count = 2000;
  static constexpr std::size_t steps = count / ListCheck::endpoints_of_step;
  // Turns of the loop until the list has this size.
  std::size_t turns_until(std::size_t size) {
    std::size_t turns = 0;
    loop.run([](LongLists& of, std::size_t until, std::size_t& counted) -> Task<void> {
      for (; of.state().endpoints.size() != until; ++counted) co_await of.loop.sleep(Duration(1));
    }(*this, size, turns));
    return turns;
  }
};

TEST_F(LongLists, AreCheckedInSteps) {
  hand.sink->on_endpoints({{.address = "a:1"}});
  std::vector<Endpoint> list = many_endpoints("s", count);
  list[500] = {.address = "wrong"};
  list[1999] = {.address = "s3:1", .weight = 9};
  hand.sink->on_shared_endpoints(std::make_shared<const std::vector<Endpoint>>(list));
  EXPECT_EQ(state().endpoints.size(), 1U);
  EXPECT_GE(turns_until(count - 2), steps / 2);
  EXPECT_EQ(state().version, 2U);
  EXPECT_EQ(state().endpoints_dropped, 2U);
  EXPECT_NE(state().drop_reason.find("'s3:1' is repeated"), std::string::npos) << state().drop_reason;
  list.erase(list.begin() + 1999);
  list.erase(list.begin() + 500);
  EXPECT_EQ(state().endpoints, list);
  hand.sink->on_endpoints(list);
  wait(milliseconds(1));
  hand.sink->on_endpoints({{.address = "b:1"}});
  turns_until(1);
  EXPECT_EQ(state().version, 3U) << "the list that was the same is none";
}

TEST_F(LongLists, TheLastOneOfThoseThatComeMeanwhileCounts) {
  hand.sink->on_endpoints(many_endpoints("a", count));
  hand.sink->on_endpoints(many_endpoints("b", count + 1));
  hand.sink->on_endpoints(many_endpoints("c", count + 2));
  turns_until(count + 2);
  EXPECT_EQ(state().version, 2U) << "those of a and c";
  EXPECT_EQ(state().endpoints.front().address, "c0:1");
  hand.sink->on_endpoints(many_endpoints("d", count));
  hand.sink->on_endpoints(std::vector<Endpoint>(10'001, Endpoint{.address = "a:1"}));
  EXPECT_EQ(state().lists_refused, 0U);
  turns_until(count);
  run_until(loop, [this] { return state().lists_refused == 1; });
  EXPECT_EQ(state().endpoints.front().address, "d0:1");
}

TEST_F(LongLists, WhatIsReportedBehindAListIsNoticedBehindIt) {
  hand.sink->on_endpoints(many_endpoints("a", count));
  hand.sink->on_failure(Error::of_call(ErrorCode::unavailable, "no answer"));
  hand.sink->on_confirmed();
  EXPECT_FALSE(state().error);
  EXPECT_EQ(changes, 0);
  turns_until(count);
  ASSERT_TRUE(state().error);
  EXPECT_EQ(state().error->text, "hand:x: no answer");
  hand.sink->on_endpoints(many_endpoints("b", count));
  hand.sink->on_failure(Error::of_call(ErrorCode::unavailable, "no answer"));
  hand.sink->on_endpoints(many_endpoints("c", count + 1));
  turns_until(count + 1);
  EXPECT_FALSE(state().error) << "the source has a list again";
}

TEST_F(LongLists, ThatOfAnotherMainClusterCountsAtOnce) {
  const auto routes_of = [](const std::string& main) {
    return std::make_shared<const NamingRoutes>(NamingRoutes{.clusters = {main}, .routes = {{.targets = {{}}}}});
  };
  hand.sink->on_routes(routes_of("blue"));
  hand.sink->on_endpoints(many_endpoints("a", count));
  hand.sink->on_routes(routes_of("blue"));
  EXPECT_TRUE(state().endpoints.empty());
  hand.sink->on_routes(routes_of("green"));
  hand.sink->on_endpoints(many_endpoints("b", count));
  EXPECT_EQ(state().endpoints.size(), count);
  EXPECT_EQ(state().endpoints.front().address, "b0:1");
  wait(milliseconds(1));
  EXPECT_EQ(state().version, 1U) << "the list of the cluster before is forgotten";
}

TEST_F(LongLists, MayEndMeanwhile) {
  hand.sink->on_endpoints(many_endpoints("a", count));
  hand.sink->on_endpoints(many_endpoints("b", count));
  naming.reset();
  wait(milliseconds(1));
  auto other = std::make_unique<Loop>();
  auto opened = Naming::open(*other, "hand:x", {hand.scheme()});
  hand.sink->on_endpoints(many_endpoints("a", count));
  other.reset();
  EXPECT_TRUE((*opened)->state().endpoints.empty());
}

TEST(NamingSchemes, NamesChooseTheScheme) {
  Loop loop;
  for (const char* const name : {"list:a:1,b:1", "list://a:1,b:1"}) {
    const auto naming = Naming::open(loop, name, default_naming());
    ASSERT_TRUE(naming) << naming.error().text;
    EXPECT_EQ((*naming)->state().endpoints.size(), 2U);
    EXPECT_EQ((*naming)->state().age(loop.now() + hours(1)), Duration::zero()) << "a constant list has no age";
  }
  for (const char* const name : {"", "a", "a:1", "etcd://a:1", "list:", "list:a", "file:"}) {
    const auto naming = Naming::open(loop, name, default_naming());
    ASSERT_FALSE(naming) << name;
    EXPECT_EQ(naming.error().code, ErrorCode::invalid_argument) << naming.error().text;
  }
}

void write(const std::string& path, const std::string& text) {
  const std::string beside = path + ".new";
  std::ofstream(beside) << text;
  std::filesystem::rename(beside, path);
}

class FileNames : public ::testing::Test {
 protected:
  void open_with(Duration check_interval) {
    auto opened = Naming::open(loop, "file:" + path, {file_naming({.check_interval = check_interval})});
    ASSERT_TRUE(opened) << opened.error().text;
    naming = std::move(*opened);
  }
  const NamingState& state() const { return naming->state(); }

  TemporaryFolder folder;
  const std::string path = (folder.path() / "servers").string();
  Loop loop;
  std::unique_ptr<Naming> naming;
};

TEST_F(FileNames, ChangesOfTheFileAreNoticed) {
  write(path, "a:1\n");
  open_with(milliseconds(1));
  run_until(loop, [&] { return state().version == 1; });
  write(path, "a:1\nb:1 zone=x\n");
  run_until(loop, [&] { return state().version == 2; });
  EXPECT_EQ(state().endpoints[1], (Endpoint{.address = "b:1", .zone = "x"}));
}

TEST_F(FileNames, ChangesAreReportedByTheSystem) {
  write(path, "a:1\n");
  open_with(hours(1));
  run_until(loop, [&] { return state().version == 1; });
  write(path, "b:1\n");
  run_until(loop, [&] { return state().version == 2; });
  EXPECT_EQ(state().endpoints, std::vector<Endpoint>{{.address = "b:1"}});
}

TEST_F(FileNames, AMalformedOrMissingFileLeavesTheLastList) {
  write(path, "a:1\n");
  open_with(milliseconds(1));
  run_until(loop, [&] { return state().version == 1; });
  write(path, "a:1\nnonsense\n");
  run_until(loop, [&] { return state().error.has_value(); });
  EXPECT_NE(state().error->text.find("line 2: address 'nonsense'"), std::string::npos) << state().error->text;
  write(path, "");
  run_until(loop, [&] { return state().error && state().error->text.contains("has no endpoint"); });
  std::filesystem::remove(path);
  run_until(loop, [&] { return state().error && state().error->text.contains("does not exist"); });
  EXPECT_EQ(state().endpoints.size(), 1U);
  write(path, "a:1\n");
  run_until(loop, [&] { return !state().error; });
  EXPECT_EQ(state().version, 1U);
}

TEST_F(FileNames, AFileThatIsTooLargeIsRefused) {
  std::ofstream(path) << std::string(2000, '#');
  auto opened = Naming::open(loop, "file://" + path, {file_naming({.file_bytes_max = 1999})});
  ASSERT_TRUE(opened);
  run_until(loop, [&] { return (*opened)->state().error.has_value(); });
  EXPECT_EQ((*opened)->state().error->code, ErrorCode::limit_exceeded);
}

TEST_F(FileNames, MayEndWhileTheFileIsRead) {
  write(path, "a:1\n");
  open_with(milliseconds(1));
  naming.reset();
  loop.run([]() -> Task<void> { co_return; }());
}

}  // namespace
}  // namespace hawser::cluster
