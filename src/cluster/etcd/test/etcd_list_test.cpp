#include "cluster/etcd/etcd_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cluster/endpoint_text.h"
#include "cluster/etcd/endpoint_record.h"
#include "cluster/etcd/etcd_name.h"

namespace hawser::cluster {
namespace {

using protocol::grpc::add_bytes_field;
using protocol::grpc::add_number_field;
using News = EtcdList::News;

// Messages of etcd, as its server writes them.
struct PlayedKey {
  std::string key;
  std::string value;
  std::uint64_t revision = 0;
  bool removed = false;
};

std::string key_value_of(const PlayedKey& key) {
  std::string message;
  add_bytes_field(message, 1, key.key);
  add_number_field(message, 3, key.revision);
  if (!key.removed) add_bytes_field(message, 5, key.value);
  return message;
}

std::string header_of(std::uint64_t revision) {
  std::string header;
  add_number_field(header, 3, revision);
  std::string message;
  add_bytes_field(message, 1, header);
  return message;
}

std::string range_of(std::uint64_t revision, const std::vector<PlayedKey>& keys, std::size_t count) {
  std::string message = header_of(revision);
  for (const PlayedKey& key : keys) add_bytes_field(message, 2, key_value_of(key));
  add_number_field(message, 4, count);
  return message;
}
std::string range_of(std::uint64_t revision, const std::vector<PlayedKey>& keys) {
  return range_of(revision, keys, keys.size());
}

std::string watch_of(std::uint64_t revision, const std::vector<PlayedKey>& events, bool fragment = false) {
  std::string message = header_of(revision);
  if (fragment) add_number_field(message, 7, 1);
  for (const PlayedKey& key : events) {
    std::string event;
    if (key.removed) add_number_field(event, 1, 1);
    add_bytes_field(event, 2, key_value_of(key));
    add_bytes_field(message, 11, event);
  }
  return message;
}

PlayedKey server(const std::string& address, std::uint64_t revision) {
  return {"svc/" + address, record_of({.address = address}), revision};
}
PlayedKey gone(const std::string& address, std::uint64_t revision) { return {"svc/" + address, "", revision, true}; }

std::vector<std::string> addresses_of(const EtcdList& list) {
  std::vector<std::string> addresses;
  for (const Endpoint& endpoint : list.endpoints()) addresses.push_back(endpoint.address);
  return addresses;
}

using Addresses = std::vector<std::string>;

// The first field of a watch request's part "create", as number.
std::uint64_t start_revision_of(const std::string& request) {
  std::uint64_t revision = 0;
  const std::string create = protocol::grpc::string_field(request, 1).value();
  protocol::grpc::visit_fields(create, [&](const protocol::grpc::ProtoField& field) {
    if (field.number == 3) revision = field.value;
  });
  return revision;
}

TEST(EtcdLists, AListFollowsItsChanges) {
  EtcdList list("svc/");
  ASSERT_TRUE(list.on_range(range_of(7, {server("b:1", 5), server("a:1", 7)})));
  EXPECT_EQ(addresses_of(list), (Addresses{"a:1", "b:1"}));
  EXPECT_EQ(start_revision_of(list.watch_request()), 8U);
  EXPECT_EQ(list.on_watch(watch_of(9, {server("c:1", 8), gone("a:1", 9)})), News::changed);
  EXPECT_EQ(addresses_of(list), (Addresses{"b:1", "c:1"}));
  EXPECT_EQ(list.on_watch(watch_of(9, {gone("unknown:1", 9)})), News::changed);
  EXPECT_EQ(list.on_watch(watch_of(12, {})), News::confirmed);
  EXPECT_EQ(addresses_of(list), (Addresses{"b:1", "c:1"}));
  EXPECT_EQ(start_revision_of(list.watch_request()), 10U);
}

TEST(EtcdLists, FragmentsAreOneChange) {
  EtcdList list("svc/");
  ASSERT_TRUE(list.on_range(range_of(7, {server("a:1", 7)})));
  EXPECT_EQ(list.on_watch(watch_of(8, {server("b:1", 8)}, true)), News::none);
  EXPECT_EQ(list.on_watch(watch_of(8, {server("c:1", 8)}, true)), News::none);
  EXPECT_FALSE(list.whole());
  EXPECT_EQ(list.on_watch(watch_of(8, {gone("a:1", 8)})), News::changed);
  EXPECT_TRUE(list.whole());
  EXPECT_EQ(addresses_of(list), (Addresses{"b:1", "c:1"}));
  EXPECT_EQ(list.on_watch(watch_of(8, {})), News::confirmed);
  for (std::size_t i = 0; i < EtcdList::fragments_max; ++i) {
    ASSERT_EQ(list.on_watch(watch_of(9, {server("d:1", 9)}, true)), News::none);
  }
  const auto endless = list.on_watch(watch_of(9, {}, true));
  ASSERT_FALSE(endless);
  EXPECT_EQ(endless.error().code, ErrorCode::limit_exceeded);
}

TEST(EtcdLists, AWatchThatEndsSaysWhy) {
  EtcdList list("svc/");
  ASSERT_TRUE(list.on_range(range_of(7, {})));
  std::string compacted = header_of(90);
  add_number_field(compacted, 4, 1);
  add_number_field(compacted, 5, 60);
  ASSERT_FALSE(list.on_watch(compacted));
  EXPECT_NE(list.on_watch(compacted).error().text.find("has compacted"), std::string::npos);
  std::string cancelled = header_of(90);
  add_number_field(cancelled, 4, 1);
  add_bytes_field(cancelled, 6, "permission\ndenied");
  ASSERT_FALSE(list.on_watch(cancelled));
  EXPECT_NE(list.on_watch(cancelled).error().text.find("permission\\x0adenied"), std::string::npos);
  std::string restored = header_of(6);
  ASSERT_FALSE(list.on_watch(restored)) << "the data was restored from an older copy";
}

TEST(EtcdLists, HostileAnswersAreBoundedAndRefused) {
  EtcdList list("svc/");
  EXPECT_FALSE(list.on_range("\x0a\xff"));
  EXPECT_FALSE(list.on_range(std::string("\x0a\x01\xff", 3)));
  std::vector<PlayedKey> many;
  for (std::size_t i = 0; i <= EndpointLimits::endpoints_max; ++i) many.push_back(server(std::to_string(i) + ":1", 1));
  const auto whole = list.on_range(range_of(1, many));
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code, ErrorCode::limit_exceeded);
  const auto million = list.on_range(range_of(1, {server("a:1", 1)}, 1'000'000));
  ASSERT_FALSE(million);
  EXPECT_NE(million.error().text.find("1000000 keys in etcd, more than 10000"), std::string::npos);
  ASSERT_TRUE(list.on_range(range_of(1, {server("a:1", 1)})));
  const auto grown = list.on_watch(watch_of(2, many));
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, ErrorCode::limit_exceeded);
  ASSERT_TRUE(list.on_range(range_of(1, {{"svc/" + std::string(1 << 20, 'k'), "x", 1}, {"other/a:1", "x", 1}})));
  EXPECT_EQ(list.endpoints().size(), 1U) << "the key of another service is ignored";
  ASSERT_TRUE(list.on_watch(watch_of(2, {gone(std::string(1 << 20, 'k'), 2)})));
  EXPECT_TRUE(list.endpoints().empty());
}

TEST(EtcdLists, RevisionsThatCannotBeFollowedAreRefused) {
  for (const std::uint64_t revision : {std::uint64_t{0}, std::uint64_t{INT64_MAX}, ~std::uint64_t{0}}) {
    EtcdList list("svc/");
    const auto read = list.on_range(range_of(revision, {server("a:1", 1)}));
    ASSERT_FALSE(read) << revision;
    EXPECT_EQ(read.error().code, ErrorCode::protocol_error) << read.error().text;
  }
}

// Each of 10,000 keys may have a value of 1 MiB.
TEST(EtcdRecords, TextsBeyondTheLimitsAreNotKept) {
  const std::string mebibyte(std::size_t{1} << 20, 'x');
  std::vector<Endpoint> hostile(5, Endpoint{.address = "a:1"});
  hostile[0].address = mebibyte;
  hostile[1].zone = mebibyte;
  hostile[2].tags = {{mebibyte, "v"}};
  hostile[3].tags = {{"k", mebibyte}};
  for (int i = 0; i < 300; ++i) hostile[4].tags.emplace_back("k" + std::to_string(i), "v");
  for (const Endpoint& endpoint : hostile) {
    const Endpoint kept = endpoint_of(record_of(endpoint));
    EXPECT_FALSE(why_invalid(kept).empty()) << "it stays invalid";
    std::size_t bytes = kept.address.capacity() + kept.zone.capacity();
    for (const auto& [key, value] : kept.tags) bytes += sizeof(key) * 2 + key.capacity() + value.capacity();
    EXPECT_LT(bytes, 4096U) << why_invalid(kept);
  }
}

TEST(EtcdRecords, HaveTheFormatOfEtcdsResolver) {
  EXPECT_EQ(record_of({.address = "10.0.0.1:80"}), R"({"Op":0,"Addr":"10.0.0.1:80","Metadata":null})");
  const Endpoint full{.address = "a:1", .weight = 3, .priority = 2, .zone = "z\"", .tags = {{"k", "v"}}};
  EXPECT_EQ(record_of(full), R"({"Op":0,"Addr":"a:1","Metadata":{"weight":3,"priority":2,"zone":"z\"","k":"v"}})");
  EXPECT_EQ(endpoint_of(record_of(full)), full);
  EXPECT_EQ(endpoint_of(R"({"Addr":"a:1"})"), Endpoint{.address = "a:1"});
  EXPECT_EQ(endpoint_of(R"({"Op":1,"Metadata":["x",{"weight":9}],"Addr":"a:1","More":{"Addr":"b:1"}})"),
            Endpoint{.address = "a:1"});
  EXPECT_EQ(endpoint_of(R"({"Addr":"a:1","Metadata":{"deep":{"weight":[9]},"weight":"4","on":true}})"),
            (Endpoint{.address = "a:1", .weight = 4, .tags = {{"on", "true"}}}));
}

TEST(EtcdRecords, MalformedOnesAreRefusedWithTheirText) {
  for (const char* const wrong :
       {"", "a:1", "{}", R"({"Addr":7})", R"({"Addr":"a:1")", R"({"Addr":"a:1"} x)", R"(["Addr","a:1"])",
        R"({"Addr":"a:1","Metadata":{"weight":0}})", R"({"Addr":"a:1","Metadata":{"weight":-1}})",
        R"({"Addr":"a:1","Metadata":{"weight":1e9}})", R"({"Addr":"a:1","Metadata":{"weight":"NaN"}})",
        R"({"Addr":"a:1","Metadata":{"priority":-1}})", R"({"Addr":"a:1","Metadata":{"zone":"\u0007"}})"}) {
    EXPECT_NE(why_invalid(endpoint_of(wrong)), "") << wrong;
  }
  EXPECT_NE(why_invalid(endpoint_of("nonsense\n")).find("nonsense\\x0a"), std::string::npos);
  EXPECT_LT(endpoint_of(std::string(1 << 20, '[')).address.size(), 300U);
}

TEST(EtcdNames, HaveMembersAndAService) {
  const auto name = parse_etcd_name("a:1,[::1]:2/services/storage/");
  ASSERT_TRUE(name) << name.error().text;
  EXPECT_EQ(name->members, (Addresses{"a:1", "[::1]:2"}));
  EXPECT_EQ(name->prefix, "services/storage/");
  for (const char* const wrong : {"", "a:1", "a:1/", "a:1//", "/x", "a/x", "a:1,b/x"}) {
    EXPECT_FALSE(parse_etcd_name(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace hawser::cluster
