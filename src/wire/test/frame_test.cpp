#include "wire/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"

namespace hawser::wire {
namespace {

std::vector<std::byte> head_of(const Header& header, std::string_view rest = {}) {
  std::vector<std::byte> head(header_bytes + rest.size());
  write_header(head.data(), header);
  if (!rest.empty()) std::memcpy(head.data() + header_bytes, rest.data(), rest.size());
  return head;
}

TEST(Frame, HeaderGoesThereAndBack) {
  Random random(1);
  for (int i = 0; i < 1'000; ++i) {
    const Header header{.kind = static_cast<FrameKind>(1 + random.below(10)),
                        .flags = static_cast<std::uint8_t>(random.next()),
                        .metadata_bytes = static_cast<std::uint16_t>(random.next()),
                        .call = static_cast<std::uint32_t>(random.next()),
                        .method = static_cast<std::uint32_t>(random.next()),
                        .signature = static_cast<std::uint32_t>(random.next()),
                        .deadline = static_cast<std::uint32_t>(random.next()),
                        .attachment_bytes = static_cast<std::uint32_t>(random.next()),
                        .checksum = static_cast<std::uint32_t>(random.next())};
    EXPECT_EQ(read_header(head_of(header)), header);
  }
}

TEST(Frame, PartsLieWhereTheHeaderSays) {
  const std::vector<std::byte> head =
      head_of({.kind = FrameKind::request, .metadata_bytes = 5, .attachment_bytes = 3}, "meta.the body");
  const Result<Frame> frame = decode_frame(head, as_bytes(std::string_view("payload+att")), 11);
  ASSERT_TRUE(frame);
  EXPECT_EQ(as_text(frame->metadata), "meta.");
  EXPECT_EQ(as_text(frame->body), "the body");
  EXPECT_EQ(as_text(frame->payload), "payload+");
  EXPECT_EQ(as_text(frame->attachment), "att");
}

// Before the payload has come, only its announced size is known.
TEST(Frame, PayloadMayBeYetToCome) {
  const std::vector<std::byte> head = head_of({.kind = FrameKind::response, .attachment_bytes = 100});
  const Result<Frame> frame = decode_frame(head, {}, 100);
  ASSERT_TRUE(frame);
  EXPECT_TRUE(frame->payload.empty());
  EXPECT_TRUE(frame->attachment.empty());
  EXPECT_FALSE(decode_frame(head, {}, 99));
}

TEST(Frame, WhateverComesIsTakenApartOrRefused) {
  Random random(2);
  for (int i = 0; i < 50'000; ++i) {
    std::vector<std::byte> head(random.below(80));
    for (std::byte& one : head) one = static_cast<std::byte>(random.chance(0.5) ? random.below(12) : random.next());
    std::vector<std::byte> payload(random.chance(0.5) ? 0 : random.below(40));
    const Result<Frame> frame = decode_frame(head, payload, payload.size());
    if (!frame) {
      EXPECT_EQ(frame.error().code, ErrorCode::protocol_error);
      EXPECT_EQ(frame.error().scope, ErrorScope::connection);
      EXPECT_EQ(frame.error().initiator, Initiator::peer);
      continue;
    }
    EXPECT_EQ(header_bytes + frame->metadata.size() + frame->body.size(), head.size());
    EXPECT_EQ(frame->payload.size() + frame->attachment.size(), payload.size());
    static_cast<void>(checksum_matches(head, payload));
  }
}

TEST(Frame, Deadlines) {
  EXPECT_EQ(encode_deadline(0), 1U);
  EXPECT_EQ(encode_deadline(-5), 1U);
  EXPECT_EQ(encode_deadline(std::numeric_limits<std::int64_t>::min()), 1U);
  EXPECT_EQ(encode_deadline(1), 1U);
  EXPECT_EQ(decode_deadline(0), 0);
  constexpr std::int64_t top = std::int64_t{1} << 31;
  EXPECT_EQ(decode_deadline(encode_deadline(top - 1)), top - 1);
  for (const std::int64_t microseconds : {top, top + 1, top * 5 + 3, std::int64_t{86'400'000'000}}) {
    const std::int64_t back = decode_deadline(encode_deadline(microseconds));
    EXPECT_GE(back, microseconds);
    EXPECT_LT(back, microseconds + 1'000);
  }
  EXPECT_EQ(decode_deadline(encode_deadline(std::numeric_limits<std::int64_t>::max())), (top - 1) * 1'000);
}

TEST(Frame, ChecksumSeesEveryBit) {
  std::vector<std::byte> head = head_of({.kind = FrameKind::request, .flags = flag_checksum, .call = 77}, "body");
  std::string payload = "a payload";
  const Bytes bytes = as_bytes(payload);
  // In pieces, or as one: the same.
  const std::array<ConstBuffer, 2> pieces{{{bytes.data(), 4}, {bytes.data() + 4, bytes.size() - 4}}};
  store_le(head.data() + 24, frame_checksum(head, pieces));
  EXPECT_TRUE(checksum_matches(head, bytes));
  for (std::size_t bit = 0; bit < head.size() * 8; ++bit) {
    if (bit == 8) continue;  // Without its flag there is no checksum.
    head[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(checksum_matches(head, bytes)) << bit;
    head[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  for (char& one : payload) {
    one ^= 4;
    EXPECT_FALSE(checksum_matches(head, bytes));
    one ^= 4;
  }
  EXPECT_FALSE(checksum_matches(head, bytes.first(bytes.size() - 1)));
}

TEST(Frame, ErrorCodesOfTheFuture) {
  EXPECT_EQ(decode_error_code(6), ErrorCode::overloaded);
  EXPECT_EQ(decode_error_code(13), ErrorCode::internal);
  for (const std::uint32_t number : {0U, 14U, 999U, 0xffffU}) EXPECT_EQ(decode_error_code(number), ErrorCode::internal);
  EXPECT_EQ(decode_error_scope(2), ErrorScope::transport);
  for (const std::uint32_t number : {3U, 255U}) EXPECT_EQ(decode_error_scope(number), ErrorScope::call);
}

}  // namespace
}  // namespace hawser::wire
