#include "protocol/grpc/option_bounds.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "hawser/grpc.h"
#include "hawser/grpc_client.h"
#include "hawser/loop.h"

namespace hawser::protocol::grpc {
namespace {

template <class Make>
std::string thrown_by(Make make) {
  try {
    make();
  } catch (const std::invalid_argument& why) {
    return why.what();
  }
  return "";
}
std::string refusal(const GrpcOptions& options) {
  return thrown_by([&] { hawser::grpc(options); });
}
std::string refusal(const GrpcClientOptions& options) {
  return thrown_by([&] {
    Loop loop;
    const GrpcClient client(loop, options);
  });
}

TEST(GrpcOptionBounds, DefaultsAndBoundsAreValid) {
  EXPECT_EQ(refusal(GrpcOptions{}), "");
  EXPECT_EQ(refusal(GrpcClientOptions{}), "");
  EXPECT_EQ(refusal(GrpcOptions{.calls_max = 1}), "");
  EXPECT_EQ(refusal(GrpcOptions{.calls_max = 65'535}), "");
}

TEST(GrpcOptionBounds, ErrorsNameOptionValueAndBounds) {
  EXPECT_EQ(refusal(GrpcOptions{.message_bytes_max = 0}),
            "hawser: GrpcOptions::message_bytes_max is 0, and must be from 1 to 4294967295");
  EXPECT_EQ(refusal(GrpcOptions{.calls_max = 65'536}),
            "hawser: GrpcOptions::calls_max is 65536, and must be from 1 to 65535");
  EXPECT_EQ(refusal(GrpcOptions{.connection_window_bytes = 65'534}),
            "hawser: GrpcOptions::connection_window_bytes is 65534, and must be from 65535 to 2147483647");
  EXPECT_EQ(refusal(GrpcOptions{.idle_frames_max = 99}),
            "hawser: GrpcOptions::idle_frames_max is 99, and must be from 100 to 1000000000");
  EXPECT_EQ(refusal(GrpcClientOptions{.calls_in_flight_max = 0}),
            "hawser: GrpcClientOptions::calls_in_flight_max is 0, and must be from 1 to 65535");
  EXPECT_EQ(refusal(GrpcClientOptions{.metadata_bytes_max = 1023}),
            "hawser: GrpcClientOptions::metadata_bytes_max is 1023, and must be from 1024 to 65535");
}

TEST(GrpcOptionBounds, ErrorsNameDurations) {
  EXPECT_EQ(refusal(GrpcOptions{.connection_age_max = Duration::zero()}),
            "hawser: GrpcOptions::connection_age_max is 0s, and must be positive; `forever` removes the limit");
  EXPECT_EQ(
      refusal(GrpcOptions{.connection_age_grace = -std::chrono::seconds(1)}),
      "hawser: GrpcOptions::connection_age_grace is -1000000000ns, and must be positive; `forever` removes the limit");
  EXPECT_EQ(refusal(GrpcOptions{.write_timeout = std::chrono::microseconds(10)}),
            "hawser: GrpcOptions::write_timeout is 10us, and must be at least 1 ms; `forever` removes the limit");
}

}  // namespace
}  // namespace hawser::protocol::grpc
