#include "transport/rdma/connection/local_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "transport/rdma/connection/completion_entries.h"
#include "transport/rdma/device/test/fake_device_testing.h"

namespace hawser::transport::rdma {
namespace {

using testing::HasSubstr;

Gid local_ipv4(unsigned char last) {
  Gid gid;
  gid.bytes[10] = gid.bytes[11] = std::byte{0xff};
  gid.bytes[12] = std::byte{10};
  gid.bytes[15] = std::byte{last};
  return gid;
}

class RdmaLocalPort : public testing::Test {
 protected:
  RdmaLocalPort() {
    device.status = {.number = 2, .active = true, .ethernet = true, .mtu_bytes = 4096};
    device.gid_entries = {{3, local_ipv4(1), GidType::roce_v2}, {4, local_ipv4(2), GidType::roce_v2}};
    port.emplace(options, device, device.status, device.gid_entries.front());
  }

  RdmaOptions options;
  FakeDevice device;
  std::optional<LocalPort> port;
};

TEST_F(RdmaLocalPort, ReadsTheStateAndTheAddressesAgain) {
  device.status.active = false;
  device.gid_entries.erase(device.gid_entries.begin());
  EXPECT_TRUE(port->check());
  EXPECT_EQ(port->address().index, 3U);
  port->refresh();
  EXPECT_EQ(port->address().index, 4U);
  const Result<void> down = port->check();
  ASSERT_FALSE(down);
  EXPECT_THAT(down.error().text, HasSubstr("port 2"));
  EXPECT_EQ(port->offer().gid, local_ipv4(2));
}

TEST_F(RdmaLocalPort, UsesThePreferredAddressIfThePortHasIt) {
  port->prefer(local_ipv4(2));
  port->refresh();
  EXPECT_EQ(port->address().index, 4U);
  port->prefer(local_ipv4(9));
  port->refresh();
  EXPECT_EQ(port->address().index, 3U);
}

TEST_F(RdmaLocalPort, RefusesAClientOfAnotherKindOfNetwork) {
  RdmaOffer client = port->offer();
  EXPECT_TRUE(port->check(client));
  client.type = GidType::roce_v1;
  EXPECT_THAT(port->check(client).error().text, HasSubstr("RdmaOptions::address"));
  client = port->offer();
  client.gid.bytes[10] = std::byte{0};
  EXPECT_FALSE(port->check(client));
  client = port->offer();
  client.ethernet = false;
  EXPECT_THAT(port->check(client).error().text, HasSubstr("InfiniBand"));
}

TEST_F(RdmaLocalPort, ShortensPacketsTowardOnePeer) {
  const Time now{};
  const RdmaParameters peer{.mtu_bytes = 2048, .gid = local_ipv4(7)};
  EXPECT_EQ(port->mtu_bytes(), 4096U);
  EXPECT_TRUE(port->shorten(peer, now));
  EXPECT_EQ(port->limit(peer.gid, now), 1024U);
  EXPECT_GT(port->limit(local_ipv4(8), now), 4096U);
  options.path_mtu_bytes = 512;
  EXPECT_EQ(port->mtu_bytes(), 512U);
}

TEST(RdmaCompletionEntries, AreReservedUpToTheirNumber) {
  CompletionEntries entries(10);
  EXPECT_TRUE(entries.acquire(6));
  EXPECT_TRUE(entries.acquire(4));
  const Result<void> full = entries.acquire(1);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::overloaded);
  EXPECT_THAT(full.error().text, HasSubstr("cq_entries"));
  entries.release(4);
  EXPECT_TRUE(entries.acquire(4));
}

}  // namespace
}  // namespace hawser::transport::rdma
