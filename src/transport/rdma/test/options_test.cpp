#include <gtest/gtest.h>

#include "transport/rdma/device/verbs.h"
#include "transport/rdma/rdma_transport.h"

namespace hawser::transport {
namespace {

template <class T>
std::string refusal(T RdmaOptions::* member, T value) {
  RdmaOptions options;
  options.*member = value;
  const Result<void> checked = check_rdma_options(options);
  return checked ? "" : checked.error().text;
}

TEST(RdmaOptions, DefaultsAreWithinTheirBounds) { EXPECT_TRUE(check_rdma_options({})); }

TEST(RdmaOptions, WhatIsOutOfItsBoundsIsNamed) {
  EXPECT_EQ(refusal(&RdmaOptions::recv_queue_depth, 4U), "");
  EXPECT_EQ(refusal(&RdmaOptions::recv_queue_depth, 3U),
            "RdmaOptions::recv_queue_depth is 3, and must be from 4 to 4096");
  EXPECT_EQ(refusal(&RdmaOptions::gid_index, 255), "");
  EXPECT_NE(refusal(&RdmaOptions::gid_index, 256), "");
  EXPECT_NE(refusal(&RdmaOptions::gid_index, -2), "");
  EXPECT_NE(refusal(&RdmaOptions::path_mtu_bytes, 1500U), "");
  EXPECT_EQ(refusal(&RdmaOptions::path_mtu_bytes, 4096U), "");
  EXPECT_EQ(refusal(&RdmaOptions::chunk_bytes, std::size_t{5000}),
            "RdmaOptions::chunk_bytes is 5000, shared_chunk_bytes is 8192, and both must be multiples of 4096");
  EXPECT_EQ(refusal(&RdmaOptions::copied_bytes_max, std::size_t{0}), "");
  EXPECT_NE(refusal(&RdmaOptions::copied_bytes_max, (std::size_t{1} << 30) + 1), "");
  EXPECT_NE(refusal(&RdmaOptions::signal_every, 33U), "");
  EXPECT_EQ(refusal(&RdmaOptions::shared_low_watermark, 1.5),
            "RdmaOptions::shared_low_watermark is 1.5, and must be from 0 to 1");
  EXPECT_EQ(refusal(&RdmaOptions::idle_memory_timeout, Duration(0)), "");
  EXPECT_EQ(refusal(&RdmaOptions::idle_memory_timeout, Duration(-1)),
            "RdmaOptions::idle_memory_timeout is -1 ns, and must not be negative");
  EXPECT_EQ(refusal(&RdmaOptions::port_down_grace, Duration(60'000'000'000)), "");
  EXPECT_EQ(refusal(&RdmaOptions::port_down_grace, Duration(60'000'000'001)),
            "RdmaOptions::port_down_grace is 60000000001 ns, and must be from 0 to 60 s");
}

TEST(RdmaOptions, MemoryOfAConnection) {
  EXPECT_EQ(rdma_connection_bytes_max({}), 10U * 256 * 1024);
  RdmaOptions shared;
  shared.shared_receive_queue = true;
  EXPECT_LE(rdma_idle_connection_bytes(shared), 64U * 1024);
}

TEST(RdmaVerbs, GidsAsText) {
  rdma::Gid gid;
  gid.bytes[10] = gid.bytes[11] = std::byte{0xff};
  gid.bytes[12] = std::byte{10};
  gid.bytes[15] = std::byte{7};
  EXPECT_TRUE(gid.ipv4_mapped());
  EXPECT_EQ(to_string(gid), "::ffff:10.0.0.7");
  gid.bytes[0] = std::byte{0xfe};
  gid.bytes[1] = std::byte{0x80};
  EXPECT_FALSE(gid.ipv4_mapped());
  EXPECT_EQ(to_string(gid), "fe80:0:0:0:0:ffff:a00:7");
}

}  // namespace
}  // namespace hawser::transport
