#include "transport/rdma/device/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace hawser::transport::rdma {
namespace {

using testing::HasSubstr;

Gid ipv4(unsigned char last) {
  Gid gid;
  gid.bytes[10] = gid.bytes[11] = std::byte{0xff};
  gid.bytes[12] = std::byte{10};
  gid.bytes[15] = std::byte{last};
  return gid;
}

Gid ipv6() {
  Gid gid;
  gid.bytes[0] = std::byte{0xfe};
  gid.bytes[1] = std::byte{0x80};
  gid.bytes[15] = std::byte{1};
  return gid;
}

// The addresses of a RoCE card, in the order in which it lists them.
std::vector<GidEntry> card() {
  return {{0, ipv6(), GidType::roce_v1},
          {1, ipv6(), GidType::roce_v2},
          {2, ipv4(1), GidType::roce_v1},
          {3, ipv4(1), GidType::roce_v2},
          {5, ipv4(2), GidType::roce_v2}};
}

TEST(Address, AutomaticPrefersRoutableIpv4) {
  std::vector<GidEntry> addresses = card();
  EXPECT_EQ(choose_address({}, addresses)->index, 3u);
  addresses.resize(3);
  EXPECT_EQ(choose_address({}, addresses)->index, 1u);
  addresses.resize(1);
  EXPECT_EQ(choose_address({}, addresses)->index, 0u);
  addresses.insert(addresses.begin(), {7, ipv6(), GidType::infiniband});
  EXPECT_EQ(choose_address({}, addresses)->index, 7u);
}

TEST(Address, TheStreamsAddressIsPreferredAmongThoseThatWillDo) {
  EXPECT_EQ(choose_address({}, card(), ipv4(2))->index, 5u);
  EXPECT_EQ(choose_address({}, card(), ipv4(1))->index, 3u);
  EXPECT_EQ(choose_address({}, card(), ipv6())->index, 1u);
  EXPECT_EQ(choose_address({}, card(), ipv4(9))->index, 3u);
  EXPECT_EQ(choose_address({.address = RdmaAddress::roce_v1}, card(), ipv4(2))->index, 0u);
  EXPECT_EQ(choose_address({.gid_index = 0}, card(), ipv4(2))->index, 0u);
}

TEST(Address, OfAStream) {
  EXPECT_EQ(gid_of("10.0.0.2:9000"), ipv4(2));
  EXPECT_EQ(gid_of("[fe80::1%eth0]:9000"), ipv6());
  EXPECT_EQ(gid_of("[::ffff:10.0.0.2]:9000"), ipv4(2));
  for (const char* const none : {"", ":", "localhost:1", "127.0.0.1:9000", "[::1]:9000", "unix:/run/x", "unix:@x",
                                 "10.0.0.2", "10.0.0:1", "[fe80::1:9000"}) {
    EXPECT_FALSE(gid_of(none)) << none;
  }
}

TEST(Address, OfTheKindAskedFor) {
  EXPECT_EQ(choose_address({.address = RdmaAddress::roce_v2_ipv6}, card())->index, 1u);
  EXPECT_EQ(choose_address({.address = RdmaAddress::roce_v1}, card())->index, 0u);
  const Result<GidEntry> none = choose_address({.address = RdmaAddress::infiniband}, card());
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().text, HasSubstr("infiniband"));
  EXPECT_THAT(none.error().text, HasSubstr("3 ::ffff:10.0.0.1"));
}

TEST(Address, ByIndexWhateverItsKind) {
  EXPECT_EQ(choose_address({.address = RdmaAddress::infiniband, .gid_index = 2}, card())->index, 2u);
  const Result<GidEntry> none = choose_address({.gid_index = 4}, card());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(none.error().text, HasSubstr("gid_index is 4"));
}

TEST(Address, PortWithoutOne) {
  const Result<GidEntry> none = choose_address({}, {});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().text, HasSubstr("IP address"));
}

}  // namespace
}  // namespace hawser::transport::rdma
