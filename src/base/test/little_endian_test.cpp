#include "base/little_endian.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace hawser {
namespace {

TEST(LittleEndian, LowestByteFirst) {
  std::array<std::byte, 9> bytes{};
  store_le(bytes.data() + 1, std::uint32_t{0x01020304});  // An address of any alignment works.
  EXPECT_EQ(bytes[0], std::byte{0});
  EXPECT_EQ(bytes[1], std::byte{4});
  EXPECT_EQ(bytes[4], std::byte{1});
  EXPECT_EQ(bytes[5], std::byte{0});
  EXPECT_EQ(load_le<std::uint32_t>(bytes.data() + 1), 0x01020304U);
  EXPECT_EQ(load_le<std::uint16_t>(bytes.data() + 1), 0x0304U);
}

template <class T>
void round_trip() {
  std::array<std::byte, sizeof(T) + 1> bytes{};
  for (const T value : {std::numeric_limits<T>::min(), T{0}, T{1}, std::numeric_limits<T>::max()}) {
    store_le(bytes.data() + 1, value);
    EXPECT_EQ(load_le<T>(bytes.data() + 1), value);
  }
}

TEST(LittleEndian, EveryWidthComesBack) {
  round_trip<std::uint8_t>();
  round_trip<std::int8_t>();
  round_trip<std::uint16_t>();
  round_trip<std::int16_t>();
  round_trip<std::uint32_t>();
  round_trip<std::int32_t>();
  round_trip<std::uint64_t>();
  round_trip<std::int64_t>();
}

}  // namespace
}  // namespace hawser
