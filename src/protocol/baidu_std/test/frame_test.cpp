#include "protocol/baidu_std/frame.h"

#include <gtest/gtest.h>

#include <vector>

#include "hawser/crc32c.h"
#include "protocol/baidu_std/test/vectors.h"

namespace hawser::protocol::baidu_std {
namespace {

using vectors::hex;
using vectors::to_hex;

TEST(BaiduStdFrame, TheHeaderOfARequestIsKnownFromItsTwelfthByteOn) {
  const std::vector<std::byte> frame = hex(vectors::request);
  for (std::size_t cut = 1; cut <= frame.size(); ++cut) {
    const auto header = parse_header(Bytes(frame).first(cut), {});
    ASSERT_TRUE(header) << cut;
    ASSERT_EQ(header->has_value(), cut >= FrameHeader::bytes) << cut;
    if (*header) {
      EXPECT_EQ(**header, (FrameHeader{BaiduStdFrameKind::rpc, 0x26, 0x1f}));
    }
  }
}

TEST(BaiduStdFrame, AStreamFrameIsToldFromARequest) {
  const std::vector<std::byte> frame = hex(vectors::stream_data);
  for (std::size_t cut = 1; cut < FrameHeader::bytes; ++cut) {
    const auto header = parse_header(Bytes(frame).first(cut), {});
    ASSERT_TRUE(header && !*header) << cut;
  }
  EXPECT_EQ(**parse_header(frame, {}), (FrameHeader{BaiduStdFrameKind::stream, 8, 6}));
}

TEST(BaiduStdFrame, AForeignByteEndsTheConnectionAtItsPosition) {
  for (std::size_t wrong = 0; wrong < 4; ++wrong) {
    std::vector<std::byte> frame = hex(vectors::request);
    frame[wrong] = std::byte{'x'};
    for (std::size_t cut = 1; cut <= frame.size(); ++cut) {
      const auto header = parse_header(Bytes(frame).first(cut), {});
      ASSERT_EQ(header.has_value(), cut <= wrong) << wrong << " " << cut;
      if (!header) {
        EXPECT_EQ(header.error().code, ErrorCode::protocol_error);
      }
    }
  }
}

TEST(BaiduStdFrame, TheLimitsEndTheConnection) {
  const FrameLimits limits{.frame_bytes_max = 1000, .meta_bytes_max = 100};
  EXPECT_TRUE(parse_header(hex("50525043 000003e8 00000064"), limits));
  const auto too_long = parse_header(hex("50525043 000003e9 00000064"), limits);
  ASSERT_FALSE(too_long);
  EXPECT_NE(too_long.error().text.find("message_bytes_max (1000)"), std::string::npos) << too_long.error().text;
  EXPECT_FALSE(parse_header(hex("50525043 000003e8 00000065"), limits));
  EXPECT_FALSE(parse_header(hex("50525043 00000010 00000011"), limits));
  EXPECT_FALSE(parse_header(hex("5354524d ffffffff ffffffff"), limits));
}

TEST(BaiduStdFrame, HeadersAreWrittenBigEndian) {
  std::byte header[FrameHeader::bytes];
  EXPECT_EQ(write_header(header, {BaiduStdFrameKind::rpc, 0x26, 0x1f}), header + sizeof header);
  EXPECT_EQ(to_hex(header), "50525043000000260000001f");
  write_header(header, {BaiduStdFrameKind::stream, 0x01020304, 6});
  EXPECT_EQ(to_hex(header), "5354524d0102030400000006");
}

TEST(BaiduStdFrame, TheMagicIsRecognisedFromItsFirstByteOn) {
  EXPECT_EQ(matching_magic(hex("50")), 1U);
  EXPECT_EQ(matching_magic(hex("50525043")), 4U);
  EXPECT_EQ(matching_magic(hex("5052504300")), 4U);
  EXPECT_EQ(matching_magic(hex("5052492a")), 2U);  // "PRI *" is HTTP/2.
  EXPECT_EQ(matching_magic(hex("5354524d")), 0U);  // No connection begins with a stream.
}

// The CRC32C of RFC 3720 for 32 bytes of zeros is 8a9136aa.
TEST(BaiduStdFrame, TheMaskOfTheChecksum) {
  const std::vector<std::byte> zeros(32);
  ASSERT_EQ(crc32c(0, zeros), 0x8a9136aaU);
  EXPECT_EQ(mask_crc(0x8a9136aaU), 0x0fd7fffaU);
  EXPECT_EQ(mask_crc(0), 0xa282ead8U);
}

}  // namespace
}  // namespace hawser::protocol::baidu_std
