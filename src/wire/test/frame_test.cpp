#include "wire/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.h"

namespace hawser::wire {
namespace {

template <class Fields>
std::vector<std::byte> head_of(const Fields& fields, std::string_view rest = {}, const Envelope& envelope = {}) {
  std::vector<std::byte> head(header_bytes + rest.size());
  encode(head.data(), fields, envelope);
  if (!rest.empty()) std::memcpy(head.data() + header_bytes, rest.data(), rest.size());
  return head;
}

// The payload is only announced: decoding does not need its bytes.
template <class Fields>
void expect_round_trip(const Fields& fields, std::size_t payload_bytes = 0) {
  const std::vector<std::byte> head = head_of(fields);
  const Result<Frame> frame = decode_frame(head, {}, payload_bytes);
  ASSERT_TRUE(frame) << frame.error().text;
  EXPECT_EQ(frame->kind, Fields::kind);
  if constexpr (requires { fields.call; }) {
    EXPECT_EQ(frame->call(), fields.call);
  } else {
    EXPECT_EQ(frame->call(), CallId());
  }
  visit(*frame, [&](const auto& decoded) {
    if constexpr (std::is_same_v<decltype(decoded), const Fields&>) {
      EXPECT_EQ(decoded, fields);
    } else {
      ADD_FAILURE() << to_string(Fields::kind) << " was decoded as " << to_string(decoded.kind);
    }
  });
}

TEST(Frame, EveryKindIsDecodedAsItWasEncoded) {
  Random random(1);
  const auto number = [&] { return static_cast<std::uint32_t>(random.next()); };
  for (int i = 0; i < 1'000; ++i) {
    const CallId call = CallId::from_number(number());
    const std::uint32_t attachment = number();
    expect_round_trip(RequestFrame{.call = call,
                                   .method = number(),
                                   .signature = number(),
                                   .deadline = number(),
                                   .attachment_bytes = attachment,
                                   .idempotent = random.chance(0.5)},
                      attachment);
    expect_round_trip(ResponseFrame{.call = call, .attachment_bytes = attachment}, attachment);
    expect_round_trip(ErrorFrame{.call = call,
                                 .code = static_cast<ErrorCode>(1 + random.below(14)),
                                 .scope = static_cast<ErrorScope>(random.below(3)),
                                 .application_code = static_cast<std::int32_t>(number())});
    expect_round_trip(CancelFrame{.call = call});
    expect_round_trip(StreamDataFrame{.call = call}, 1);
    expect_round_trip(StreamEndFrame{.call = call});
    expect_round_trip(CreditFrame{.call = call, .bytes = number()});
    expect_round_trip(MemoryFrame{.call = call, .action = number() & 0xff, .wants_crc = random.chance(0.5)});
    expect_round_trip(
        MemoryReplyFrame{.call = call, .code = static_cast<ErrorCode>(random.below(15)), .crc = number()});
  }
  expect_round_trip(PingFrame{});
  expect_round_trip(PongFrame{});
  expect_round_trip(GoawayFrame{});
}

// A sender may put anything into fields that a kind does not use.
TEST(Frame, UnusedFieldsAreIgnored) {
  for (std::uint8_t kind = kind_min; kind <= kind_max; ++kind) {
    std::vector<std::byte> head = head_of(PingFrame{});
    store_le(head.data() + at::kind, kind);
    const std::vector<std::byte> plain = head;
    for (const std::size_t offset : {at::word_0, at::word_1, at::word_2}) store_le(head.data() + offset, 0x01020304U);
    const Result<Frame> frame = decode_frame(head, {}, 0);
    const Result<Frame> expected = decode_frame(plain, {}, 0);
    ASSERT_TRUE(frame && expected);
    visit(*frame, [&](const auto& one) {
      using Fields = std::remove_cvref_t<decltype(one)>;
      visit(*expected, [&](const auto& other) {
        if constexpr (std::is_same_v<decltype(other), const Fields&>) {
          const bool uses_words = std::is_same_v<Fields, RequestFrame> || std::is_same_v<Fields, ErrorFrame> ||
                                  std::is_same_v<Fields, CreditFrame> || std::is_same_v<Fields, MemoryFrame> ||
                                  std::is_same_v<Fields, MemoryReplyFrame>;
          EXPECT_EQ(one == other, !uses_words) << to_string(one.kind);
        } else {
          ADD_FAILURE() << "two kinds for the same number";
        }
      });
    });
  }
}

TEST(Frame, NamesOfKinds) {
  EXPECT_EQ(to_string(FrameKind::request), "REQUEST");
  EXPECT_EQ(to_string(FrameKind::goaway), "GOAWAY");
  EXPECT_EQ(to_string(FrameKind::stream_credit), "STREAM_CREDIT");
  for (const int number : {0, 13, 255}) EXPECT_EQ(to_string(static_cast<FrameKind>(number)), "unknown");
}

TEST(Frame, CallIds) {
  EXPECT_EQ(CallId(7, 1).number(), 0x10007U);
  EXPECT_EQ(CallId(0xffff, 0xffff).number(), 0xffff'ffffU);
  EXPECT_EQ(CallId::from_number(0x1234'5678).slot(), 0x5678);
  EXPECT_EQ(CallId::from_number(0x1234'5678).generation(), 0x1234);
  EXPECT_EQ(CallId().number(), 0U);
}

// Only the kind and the call of a cut head are used. The rest is checked only in a whole head.
TEST(Frame, CutHeads) {
  const std::vector<std::byte> head =
      head_of(RequestFrame{.call = CallId(3, 9)}, "met", {.metadata_bytes = 60'000, .checksum = true});
  const Result<Frame> cut = decode_cut_frame(head);
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->kind, FrameKind::request);
  EXPECT_EQ(cut->call(), CallId(3, 9));
  EXPECT_FALSE(decode_frame(head, {}, 0));
  EXPECT_FALSE(decode_cut_frame(Bytes(head).first(header_bytes - 1)));
  for (const int kind : {0, 13, 255}) {
    std::vector<std::byte> wrong = head;
    wrong[at::kind] = static_cast<std::byte>(kind);
    const Result<Frame> refused = decode_cut_frame(wrong);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().text, "unknown frame kind " + std::to_string(kind));
  }
}

TEST(Frame, PartsLieWhereTheHeaderSays) {
  const std::vector<std::byte> head =
      head_of(RequestFrame{.attachment_bytes = 3}, "meta.the body", {.metadata_bytes = 5});
  const Result<Frame> frame = decode_frame(head, as_bytes(std::string_view("payload+att")), 11);
  ASSERT_TRUE(frame);
  EXPECT_EQ(as_text(frame->metadata), "meta.");
  EXPECT_EQ(as_text(frame->body), "the body");
  EXPECT_EQ(as_text(frame->payload), "payload+");
  EXPECT_EQ(as_text(frame->attachment), "att");
}

// Before the payload has been received, only its announced size is known.
TEST(Frame, PayloadMayBeYetToCome) {
  const std::vector<std::byte> head = head_of(ResponseFrame{.attachment_bytes = 100});
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
  std::vector<std::byte> head = head_of(RequestFrame{.call = CallId(77, 0)}, "body", {.checksum = true});
  std::string payload = "a payload";
  const Bytes bytes = as_bytes(payload);
  // The checksum is the same for a payload in several pieces and in one.
  const std::array<ConstBuffer, 2> pieces{{{bytes.data(), 4}, {bytes.data() + 4, bytes.size() - 4}}};
  write_checksum(head, pieces);
  EXPECT_TRUE(checksum_matches(head, bytes));
  for (std::size_t bit = 0; bit < head.size() * 8; ++bit) {
    if (bit == 8) continue;  // This bit is the checksum flag: without it the frame has no checksum.
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
  EXPECT_EQ(decode_error_code(14), ErrorCode::stale_handle);
  EXPECT_EQ(decode_error_code(15), ErrorCode::permission_denied);
  EXPECT_EQ(decode_error_code(16), ErrorCode::unauthenticated);
  for (const std::uint32_t number : {0U, 17U, 999U, 0xffffU}) EXPECT_EQ(decode_error_code(number), ErrorCode::internal);
  EXPECT_EQ(decode_error_scope(2), ErrorScope::transport);
  for (const std::uint32_t number : {3U, 255U}) EXPECT_EQ(decode_error_scope(number), ErrorScope::call);
}

}  // namespace
}  // namespace hawser::wire
