#include "transport/common/gather.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace hawser::transport {
namespace {

TEST(Gather, BuffersAreCopiedInTheirOrder) {
  const std::string one = "one";
  const std::string two = "twotwo";
  const std::array<ConstBuffer, 3> buffers{ConstBuffer{as_bytes(std::string_view(one)).data(), one.size()},
                                           ConstBuffer{nullptr, 0},
                                           ConstBuffer{as_bytes(std::string_view(two)).data(), two.size()}};
  EXPECT_EQ(total_bytes(buffers), 9U);
  std::array<std::byte, 10> to{};
  EXPECT_EQ(gather(to.data(), buffers), to.data() + 9);
  EXPECT_EQ(as_text(Bytes(to.data(), 9)), "onetwotwo");
  EXPECT_EQ(to[9], std::byte{0});
}

TEST(Gather, NoBuffersAreNoBytes) {
  EXPECT_EQ(total_bytes({}), 0U);
  EXPECT_EQ(gather(nullptr, {}), nullptr);
}

}  // namespace
}  // namespace hawser::transport
