#include "protocol/http/request_plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "hawser/loop.h"

namespace hawser::protocol::http {
namespace {

TEST(RequestPlan, ErrorsOfLimitsNameTheSizeAndTheLimit) {
  EXPECT_EQ(too_long_body(70'000, 65'536).text,
            "a body of 70000 bytes or more exceeds message_bytes_max (65536 bytes): send less, or raise the limit");
  EXPECT_EQ(unpacked_too_long(65'536).text,
            "the decompressed body exceeds message_bytes_max (65536 bytes): send less, or raise the limit");
  EXPECT_EQ(too_long_body(1, 0).code, ErrorCode::limit_exceeded);
}

TEST(RequestPlan, HandlersReturnStatusesOfFinalResponses) {
  for (const int status : {200, 204, 404, 599}) EXPECT_FALSE(unsendable_status(status)) << status;
  for (const int status : {0, 100, 199, 600, -1}) EXPECT_TRUE(unsendable_status(status)) << status;
  EXPECT_EQ(unsendable_status(199)->text, "the handler returned the status 199: use 200 to 599");
}

TEST(RequestPlan, AResultOrAnAttachmentIsTheBody) {
  EXPECT_FALSE(unsendable_result({.body = 1, .payload = 2}, 0));
  EXPECT_FALSE(unsendable_result({}, 3));
  EXPECT_TRUE(unsendable_result({.body = 1}, 3));
  EXPECT_TRUE(unsendable_result({.payload = 1}, 3));
  const std::optional<Error> refused =
      unsendable_result({.too_large = true, .code = ErrorCode::invalid_argument, .why_not = "not UTF-8"}, 0);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::invalid_argument);
  EXPECT_EQ(refused->text, "the result can't be encoded: not UTF-8");
}

TEST(RequestPlan, OnlyRoutesOfOperatorsAreServedBeyondTheLimitOfCalls) {
  const Route plain;
  Route reserved;
  reserved.reserved = true;
  RequestPlan plan;
  EXPECT_EQ(plan.calls_beyond(), 0U) << "not a route";
  plan.route = &plain;
  EXPECT_EQ(plan.calls_beyond(), 0U);
  plan.route = &reserved;
  EXPECT_EQ(plan.calls_beyond(), operator_calls_reserve);
}

TEST(CallFields, MetadataAndTheDeadlineComeFromFields) {
  const Loop loop({.log = no_log()});
  CallFields fields;
  fields.add("X-One", "1", loop);
  fields.add("accept", "text/plain", loop);
  fields.add("timeout-ms", "50", loop);
  EXPECT_EQ(MetadataView(Bytes(fields.metadata)).find("x-one"), "1");
  EXPECT_FALSE(MetadataView(Bytes(fields.metadata)).find("accept"));
  ASSERT_TRUE(fields.deadline);
  EXPECT_EQ(*fields.deadline, loop.after(std::chrono::milliseconds(50)));
  fields.clear();
  EXPECT_TRUE(fields.metadata.empty());
  EXPECT_FALSE(fields.deadline);
  fields.add("x-two", "2", loop);
  EXPECT_FALSE(MetadataView(Bytes(fields.metadata)).find("x-one"));
  EXPECT_EQ(MetadataView(Bytes(fields.metadata)).find("x-two"), "2");
}

TEST(CallFields, ValuesOfAFieldThatIsAListAreJoined) {
  const Loop loop({.log = no_log()});
  CallFields fields;
  fields.add("x-list", "a", loop);
  fields.add("authorization", "first", loop);
  fields.add("x-list", "b", loop);
  EXPECT_EQ(MetadataView(Bytes(fields.metadata)).find("x-list"), "a, b");
  EXPECT_EQ(MetadataView(Bytes(fields.metadata)).find("authorization"), "first");
}

}  // namespace
}  // namespace hawser::protocol::http
