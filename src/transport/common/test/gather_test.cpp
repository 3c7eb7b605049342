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

TEST(Gather, EveryRangeOfTheBuffersIsCopied) {
  const std::string_view text = "abcdefgh";
  const std::byte* const at = as_bytes(text).data();
  const std::array<ConstBuffer, 4> buffers{ConstBuffer{at, 3}, ConstBuffer{nullptr, 0}, ConstBuffer{at + 3, 1},
                                           ConstBuffer{at + 4, 4}};
  for (std::size_t from = 0; from <= text.size(); ++from) {
    for (std::size_t size = 0; from + size <= text.size(); ++size) {
      std::string to = "?????????";
      gather_part(reinterpret_cast<std::byte*>(to.data()), buffers, from, size);
      EXPECT_EQ(to, std::string(text.substr(from, size)) + std::string(9 - size, '?')) << from;
    }
  }
  EXPECT_EQ(as_text(gathered_copy(buffers, text.size()).bytes()), text);
}

}  // namespace
}  // namespace hawser::transport
