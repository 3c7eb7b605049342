#include "transport/rdma/connection/terms.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "exec/sim_poller.h"
#include "transport/rdma/memory/remote_access.h"

namespace hawser::transport::rdma {
namespace {

// One side on a port of RoCE with an MTU of 4096 bytes.
struct RdmaTermsTest : testing::Test {
  RdmaTerms terms(const MessageLimits& limits = {1 << 20, 1 << 19}) const {
    return RdmaTerms({.options = options,
                      .limits = limits,
                      .address = {.index = 3, .gid = {}, .type = GidType::roce_v2},
                      .domain = 7,
                      .reads_outstanding = 8,
                      .mtu_bytes = 4096,
                      .sequence = 0x123456});
  }
  RdmaChannelOptions channel(const RdmaTerms& ours) const { return ours.channel_to(peer, 4, clock); }

  RdmaOptions options{.chunk_bytes = 64 << 10, .recv_queue_depth = 8};
  const PortStatus port{.number = 2, .active = true, .ethernet = true, .mtu_bytes = 4096};
  RdmaParameters peer{.queue_pair = 55,
                      .sequence = 0x654321,
                      .mtu_bytes = 1024,
                      .chunk_bytes = 32 << 10,
                      .receives = 5,
                      .reads = 2,
                      .domain = 9};
  const exec::SimPoller clock;
};

TEST_F(RdmaTermsTest, TheSmallerValuesOfBothSidesCount) {
  options.reads_outstanding_max = 16;
  const RdmaTerms ours = terms();
  EXPECT_EQ(ours.parameters(port, 44).reads, 8U) << "the device's limit";
  const auto route = ours.route_to(peer, port);
  ASSERT_TRUE(route);
  EXPECT_EQ(route->mtu_bytes, 1024U);
  EXPECT_EQ(route->max_rd_atomic, 2U) << "reads that the peer answers";
  EXPECT_EQ(route->max_dest_rd_atomic, 8U) << "reads that this side answers";
  EXPECT_EQ(route->peer_queue_pair, 55U);
  EXPECT_EQ(route->rq_psn, 0x654321U);
  EXPECT_EQ(route->sq_psn, 0x123456U);
  EXPECT_EQ(route->gid_index, 3U);
  EXPECT_TRUE(route->access.remote_read);
  EXPECT_EQ(channel(ours).sender.packet_bytes_max, std::size_t{32} << 10);
  EXPECT_EQ(channel(ours).receiver.transfers.reads_max, 2U);
  EXPECT_EQ(channel(ours).one_sided.peer_domain, 9U);
  EXPECT_EQ(channel(ours).peer_receives, 5U);
  EXPECT_EQ(channel(ours).own_receives, 8U);
}

TEST_F(RdmaTermsTest, APacketLimitIsInTheParametersAndTheRoute) {
  RdmaTerms ours = terms();
  ours.limit_mtu(512);
  ours.limit_mtu(2048);
  EXPECT_EQ(ours.parameters(port, 44).mtu_bytes, 512U);
  EXPECT_EQ(ours.route_to(peer, port)->mtu_bytes, 512U);
}

TEST_F(RdmaTermsTest, ProtectedMessagesGiveThePeersDeviceNoAccess) {
  const RdmaTerms ours = terms({.send_bytes_max = 1 << 20, .receive_bytes_max = 1 << 20, .protected_messages = true});
  EXPECT_EQ(ours.parameters(port, 44).reads, 0U);
  EXPECT_FALSE(ours.route_to(peer, port)->access.remote_read);
  EXPECT_EQ(channel(ours).sender.eager_bytes_max, SIZE_MAX);
  EXPECT_EQ(channel(ours).one_sided.peer_domain, 0U);
  EXPECT_EQ(channel(ours).one_sided.parts_max, 1U);
}

TEST_F(RdmaTermsTest, ASharedQueueMeansSmallerPartsOfIt) {
  options.shared_receive_queue = true;
  options.shared_chunk_bytes = 8192;
  options.shared_receives_per_connection = 4;
  options.send_queue_depth = 512;
  const RdmaTerms ours = terms();
  EXPECT_EQ(ours.chunk_bytes(), 8192U);
  EXPECT_EQ(ours.receives(), 4U);
  EXPECT_EQ(ours.sends(), 24U);
  options.shared_receive_queue = false;
  EXPECT_EQ(terms().sends(), 512U);
}

TEST_F(RdmaTermsTest, RoceAndInfiniBandDoNotMeet) {
  peer.ethernet = false;
  const auto refused = terms().route_to(peer, port);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
}

}  // namespace
}  // namespace hawser::transport::rdma
