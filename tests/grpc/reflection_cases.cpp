#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "hawser/detail/protobuf_bodies.h"
#include "hawser/grpc_client.h"
#include "hawser/grpc_reflection.h"
#include "hawser/hawser.h"
#include "protocol/grpc/own_method.h"
#include "tests/grpc/raw_service.h"
#include "tests/repeat_handler.h"
#include "tests/testing.h"

// The service grpc.reflection, with definitions that are written by hand.
namespace hawser {
namespace reflection_cases {

using testing_tools::Raw;
Task<Result<void>> info(Reader<Raw>, Writer<Raw>);
Task<Result<void>> old_info(Reader<Raw>, Writer<Raw>);

}  // namespace reflection_cases

template <>
inline constexpr std::string_view method_name_override<&reflection_cases::info> =
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
template <>
inline constexpr std::string_view method_name_override<&reflection_cases::old_info> =
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

namespace {

using namespace testing_tools;
using protocol::grpc::add_bytes_field;
using protocol::grpc::add_number_field;

std::string field(unsigned number, std::string_view value) {
  std::string out;
  add_bytes_field(out, number, value);
  return out;
}
std::string number_field(unsigned number, std::uint64_t value) {
  std::string out;
  add_number_field(out, number, value);
  return out;
}

// base.proto: message base.Part. shop.proto imports it: message shop.Order with the message Inner and the enumeration
// Kind, service shop.Shop with the method Buy, and the extension 7 of base.Part.
std::string base_file() { return field(1, "base.proto") + field(2, "base") + field(4, field(1, "Part")); }
std::string shop_file() {
  const std::string order = field(1, "Order") + field(2, field(1, "item")) + field(3, field(1, "Inner")) +
                            field(4, field(1, "Kind") + field(2, field(1, "SMALL")));
  const std::string extension = field(1, "more") + field(2, ".base.Part") + number_field(3, 7);
  return field(1, "shop.proto") + field(2, "shop") + field(3, "base.proto") + field(4, order) +
         field(6, field(1, "Shop") + field(2, field(1, "Buy"))) + field(7, extension);
}
void describe_shop(detail::SchemaBuilder& out) {
  static_cast<void>(out.add_file("shop.proto", [](const void*) { return shop_file(); }, nullptr));
  static_cast<void>(out.add_file("base.proto", [](const void*) { return base_file(); }, nullptr));
}

template <auto method>
Task<std::string> ask(GrpcClient& client, std::string request) {
  auto stream = co_await client.open<method>();
  if (!stream) co_return error_of(stream);
  auto writer = stream->writer();
  const Raw message{request};
  auto written = co_await writer.write(message);
  writer.end();
  auto reader = stream->reader();
  auto reply = co_await reader.next();
  auto finished = co_await stream->finish();
  if (!finished) co_return error_of(finished);
  if (!reply || !*reply) co_return "no reply";
  // The reply repeats the request.
  const std::string head = field(2, request);
  co_return (*reply)->bytes.starts_with(head) ? (*reply)->bytes.substr(head.size()) : (*reply)->bytes;
}

Task<void> use(GrpcClient& client, std::string address) {
  using reflection_cases::info;
  auto connected = co_await client.connect(address);
  REQUIRE(connected.has_value());
  const std::string both = field(4, field(1, shop_file()) + field(1, base_file()));
  const std::string base = field(4, field(1, base_file()));
  for (const std::string_view symbol : {"shop.Order", "shop.Order.item", "shop.Order.Inner", "shop.Order.Kind",
                                        "shop.Order.SMALL", "shop.Shop", "shop.Shop.Buy", "shop.more"}) {
    auto reply = co_await ask<&info>(client, field(4, symbol));
    EXPECT_EQ(reply, both) << symbol;
  }
  // The services of the component describe themselves.
  auto own = co_await ask<&info>(client, field(4, "grpc.reflection.v1.ServerReflection"));
  EXPECT_NE(own.find("file_descriptor_proto"), std::string::npos) << own;
  auto by_name = co_await ask<&info>(client, field(3, "base.proto"));
  EXPECT_EQ(by_name, base);
  auto by_extension = co_await ask<&info>(client, field(5, field(1, "base.Part") + number_field(2, 7)));
  EXPECT_EQ(by_extension, both);
  auto numbers = co_await ask<&info>(client, field(6, "base.Part"));
  EXPECT_EQ(numbers, field(5, field(1, "base.Part") + number_field(2, 7)));
  for (const std::string& unknown : {field(4, "shop.Nothing"), field(4, ""), field(3, "nothing.proto"),
                                     field(5, field(1, "base.Part") + number_field(2, 8)), field(6, "shop.Nothing")}) {
    auto reply = co_await ask<&info>(client, unknown);
    EXPECT_EQ(reply, field(7, number_field(1, 5) + field(2, "there is no definition of it")));
  }
  auto too_long = co_await ask<&info>(client, field(4, std::string(20'000, 'x')));
  EXPECT_NE(too_long.find("the limit is 16384"), std::string::npos) << too_long;
  auto services = co_await ask<&reflection_cases::old_info>(client, field(7, ""));
  EXPECT_EQ(services, field(6, field(1, field(1, "grpc.reflection.v1.ServerReflection")) +
                                   field(1, field(1, "grpc.reflection.v1alpha.ServerReflection")) +
                                   field(1, field(1, "shop.Shop"))));
  auto malformed = co_await ask<&info>(client, "\x22\x7f");
  EXPECT_NE(malformed.find("ServerReflectionRequest"), std::string::npos) << malformed;
  auto nothing = co_await ask<&info>(client, "");
  EXPECT_EQ(nothing.substr(0, 1), "\x3a");  // An error_response.
}

TEST(GrpcReflection, FindsFilesBySymbolNameAndExtension) {
  Server server;
  add_grpc_reflection(server);
  server.add_method({.id = 1,
                     .name = "shop.Shop/Buy",
                     .handler = std::make_unique<Repeat>(),
                     .json = std::make_shared<detail::ProtobufBodies>(),
                     .describe = describe_shop});
  server.enable(grpc());
  ASSERT_TRUE(server.start());
  Loop loop;
  GrpcClient client(loop);
  loop.run(use(client, server.address()));
}

}  // namespace
}  // namespace hawser
