#include "cluster/consul/consul_instances.h"

#include <gtest/gtest.h>

#include <string>

#include "cluster/consul/consul_name.h"

namespace hawser::cluster {
namespace {

// An instance as an agent writes it; `service` and `node` are further members, `checks` its statuses.
std::string consul_instance(const std::string& service, const std::string& node = "",
                            const std::string& checks = R"({"Status":"passing"})") {
  return R"({"Node":{"ID":"x","Node":"n1","Address":"10.0.0.1","Datacenter":"dc1","TaggedAddresses":{"lan":"10.0.0.1"})" +
         node + R"(},"Service":{"ID":"s1","Service":"storage","Port":80,"EnableTagOverride":false)" + service +
         R"(},"Checks":[)" + checks + "]}";
}

ConsulInstances consul_list(const std::string& instances) {
  auto read = read_consul_instances("[" + instances + "]", "zone");
  EXPECT_TRUE(read) << read.error().text;
  return read ? std::move(*read) : ConsulInstances();
}

std::string shown(const ConsulInstances& list) {
  std::string text;
  for (const Endpoint& one : list.endpoints) {
    text += (text.empty() ? "" : " ") + one.address + "/" + std::to_string(one.weight) + "/" + one.zone;
    for (const auto& [key, value] : one.tags) text += "," + key + "=" + value;
  }
  return text + " " + std::to_string(list.not_serving);
}

TEST(ConsulInstances, AddressesAreThoseOfTheServiceOrOfItsNode) {
  EXPECT_EQ(shown(consul_list("")), " 0");
  EXPECT_EQ(shown(consul_list(consul_instance(""))), "10.0.0.1:80/1/ 0");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Address":"")"))), "10.0.0.1:80/1/ 0");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Address":"2001:db8::1")"))), "[2001:db8::1]:80/1/ 0");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Address":"a.example")"))), "a.example:80/1/ 0");
  for (const char* const other : {"unix:/a", "a b", "10.0.0.1:90", "*"}) {
    EXPECT_TRUE(shown(consul_list(consul_instance(R"(,"Address":")" + std::string(other) + "\""))).contains(' '))
        << other;
    EXPECT_TRUE(
        shown(consul_list(consul_instance(R"(,"Address":")" + std::string(other) + "\""))).starts_with("no address: "))
        << other;
  }
}

TEST(ConsulInstances, TheWorstCheckDecides) {
  const std::string weights = R"(,"Weights":{"Passing":10,"Warning":2})";
  const std::string passing = R"({"Status":"passing"})";
  const std::string warning = R"({"CheckID":"a","Status":"warning"})";
  EXPECT_EQ(shown(consul_list(consul_instance(weights, "", passing))), "10.0.0.1:80/10/ 0");
  EXPECT_EQ(shown(consul_list(consul_instance(weights, "", ""))), "10.0.0.1:80/10/ 0");
  EXPECT_EQ(shown(consul_list(consul_instance(weights, "", warning + "," + passing))), "10.0.0.1:80/2/ 0");
  EXPECT_EQ(shown(consul_list(consul_instance(weights, "", warning + R"(,{"Status":"critical"},)" + passing))), " 1");
  EXPECT_EQ(shown(consul_list(consul_instance(weights, "", R"({"Status":"maintenance"})"))), " 1");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Weights":{"Passing":1,"Warning":0})", "", warning))), " 1");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Weights":{"Passing":4000000000,"Warning":0})"))),
            "10.0.0.1:80/1000000/ 0");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Weights":{"Passing":-1})"))), " 1");
}

TEST(ConsulInstances, TheZoneIsThatOfTheNearestThatHasOne) {
  const std::string node = R"(,"Meta":{"zone":"n"})";
  EXPECT_EQ(shown(consul_list(consul_instance("", node))), "10.0.0.1:80/1/n 0");
  EXPECT_EQ(shown(consul_list(consul_instance("", R"(,"Locality":{"Region":"r","Zone":"l"})" + node))),
            "10.0.0.1:80/1/l 0");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Meta":{"zone":"s"})", R"(,"Locality":{"Zone":"l"})" + node))),
            "10.0.0.1:80/1/s,zone=s 0");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Locality":{"Zone":"a"},"Meta":{"zone":"s"})"))),
            "10.0.0.1:80/1/a,zone=s 0");
  EXPECT_EQ(shown(consul_list(consul_instance("", R"(,"Meta":{"zone":")" + std::string(65, 'z') + "\"}"))),
            "10.0.0.1:80/1/ 0");
}

TEST(ConsulInstances, MetadataAndTagsAreTags) {
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Tags":["a","b=c"],"Meta":{"version":"2","a\"b":"c"})"))),
            "10.0.0.1:80/1/,tag=a,tag=b=c,version=2,a\"b=c 0");
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Tags":null,"Meta":null)"))), "10.0.0.1:80/1/ 0");
  std::string many;
  for (int i = 0; i < 40; ++i) many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\"";
  EXPECT_EQ(consul_list(consul_instance(R"(,"Tags":[)" + many + "]")).endpoints.front().tags.size(),
            EndpointLimits::tags_max);
  EXPECT_EQ(shown(consul_list(consul_instance(R"(,"Tags":[")" + std::string(257, 't') + R"("])"))), "10.0.0.1:80/1/ 0");
}

TEST(ConsulInstances, TheOrderOfTheAnswerIsNotAChange) {
  const std::string one = consul_instance(R"(,"Address":"10.0.0.2")");
  const std::string other = consul_instance(R"(,"Address":"10.0.0.1")");
  EXPECT_EQ(shown(consul_list(one + "," + other)), shown(consul_list(other + "," + one)));
}

TEST(ConsulInstances, OtherAnswersAreRefused) {
  for (const char* const text : {"", "{}", "null", "[", "[] []", "[1", "[{\"Node\":}]"}) {
    EXPECT_FALSE(read_consul_instances(text, "zone")) << text;
  }
  EXPECT_EQ(shown(consul_list("1,null,[2],\"a\"")), shown(consul_list("{},{},{},{}")))
      << "such an instance has no address";
}

TEST(ConsulInstances, AListThatIsTooLongHasOneMoreThanItsLimit) {
  std::string many = consul_instance("");
  for (std::size_t i = 0; i < EndpointLimits::endpoints_max + 10; ++i) many += ",{}";
  EXPECT_EQ(consul_list(many).endpoints.size(), EndpointLimits::endpoints_max + 1);
}

TEST(ConsulNames, AgentsServicesAndParametersAreRead) {
  const auto shown_name = [](std::string_view target) {
    const auto name = parse_consul_name(target);
    return name ? name->agent + "|" + name->service + "|" + name->query : name.error().text;
  };
  EXPECT_EQ(shown_name("storage"), "|storage|");
  EXPECT_EQ(shown_name("/storage"), "|storage|");
  EXPECT_EQ(shown_name("/storage/"), "|storage|");
  EXPECT_EQ(shown_name("a:1/storage?tag=x&passing&"), "a:1|storage|&tag=x&passing");
  EXPECT_EQ(shown_name("[::1]:8500/storage?filter=Service.Meta.v%20==%202"),
            "[::1]:8500|storage|&filter=Service.Meta.v%20==%202");
}

}  // namespace
}  // namespace hawser::cluster
