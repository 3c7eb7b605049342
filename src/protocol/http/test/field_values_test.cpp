#include "protocol/http/field_values.h"

#include <gtest/gtest.h>

#include <chrono>

namespace hawser::protocol::http {
namespace {

TEST(FieldValues, ATimeoutOfGrpcHasAUnit) {
  using namespace std::chrono_literals;
  EXPECT_EQ(timeout_of("2H", true), 2h);
  EXPECT_EQ(timeout_of("3M", true), 3min);
  EXPECT_EQ(timeout_of("4S", true), 4s);
  EXPECT_EQ(timeout_of("5m", true), 5ms);
  EXPECT_EQ(timeout_of("6u", true), 6us);
  EXPECT_EQ(timeout_of("07n", true), 7ns);
  EXPECT_EQ(timeout_of("999999999H", true), 1'000'000h) << "longer ones would exceed the type";
  for (const char* const wrong :
       {"", "S", "1", "1s", "1SS", "1 S", " 1S", "-1S", "+1S", "1.5S", "1:S", "1/S", "1000000000S"}) {
    EXPECT_FALSE(timeout_of(wrong, true)) << wrong;
  }
}

TEST(FieldValues, ATimeoutInMillisecondsHasNoUnit) {
  using namespace std::chrono_literals;
  EXPECT_EQ(timeout_of("0", false), 0ms);
  EXPECT_EQ(timeout_of("999999999", false), 999'999'999ms);
  for (const char* const wrong : {"", "5m", "5 ", "-5", "1000000000", "a"}) {
    EXPECT_FALSE(timeout_of(wrong, false)) << wrong;
  }
}

TEST(FieldValues, AMediaTypeHasNoParameters) {
  EXPECT_EQ(media_type("application/json"), "application/json");
  EXPECT_EQ(media_type("text/plain \t; charset=utf-8"), "text/plain");
  EXPECT_EQ(media_type("; a"), "");
}

TEST(FieldValues, SomeFieldsAreMetadata) {
  for (const char* const name : {"x-a", "X-Request-Id", "Authorization", "traceparent", "tracestate", "log-id"}) {
    EXPECT_TRUE(is_metadata(name)) << name;
  }
  for (const char* const name : {"", "x", "x-", "xa-b", "host", "cookie", "authorizations"}) {
    EXPECT_FALSE(is_metadata(name)) << name;
  }
}

TEST(FieldValues, ValuesOfAListAreJoined) {
  EXPECT_EQ(separator_of("Cookie"), "; ");
  EXPECT_EQ(separator_of("accept"), ", ");
  EXPECT_EQ(separator_of("x-anything"), ", ");
  for (const char* const name : {"Authorization", "content-length", "HOST", "timeout-ms", "grpc-timeout"}) {
    EXPECT_EQ(separator_of(name), "") << name;
  }
}

}  // namespace
}  // namespace hawser::protocol::http
