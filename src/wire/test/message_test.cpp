#include "wire/message.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

namespace hawser::wire {
namespace {

using State = ParsedPrefix::State;
constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();

std::array<std::byte, MessagePrefix::bytes> prefix_of(std::uint32_t head, std::uint32_t payload) {
  std::array<std::byte, MessagePrefix::bytes> bytes;
  encode(bytes.data(), MessagePrefix{head, payload});
  return bytes;
}

TEST(MessagePrefix, BytesOnTheWire) {
  const auto bytes = prefix_of(0x04030201, 0x14131211);
  EXPECT_EQ(as_text(bytes), std::string_view("\x01\x02\x03\x04\x11\x12\x13\x14"));
}

TEST(MessagePrefix, IsParsedOnceItIsComplete) {
  const auto bytes = prefix_of(28, 70'000);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A copy, so that a read beyond its end is detected.
    const std::vector<std::byte> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(parse_prefix(part, MessageLimit(1 << 20)).state, State::incomplete) << size;
  }
  std::vector<std::byte> more(bytes.begin(), bytes.end());
  for (int i = 0; i < 2; ++i) {
    const ParsedPrefix parsed = parse_prefix(more, MessageLimit(1 << 20));
    EXPECT_EQ(parsed.state, State::complete);
    EXPECT_EQ(parsed.prefix, (MessagePrefix{28, 70'000}));
    EXPECT_EQ(parsed.prefix.message_bytes(), 8U + 28U + 70'000U);
    more.resize(more.size() + 100, std::byte{0xff});
  }
}

TEST(MessageLimit, IsExactAndCountsThePrefix) {
  const MessageLimit limit(1'000);
  EXPECT_EQ(limit.bytes_max(), 1'000U);
  for (const std::uint32_t head : {0U, 1U, 500U, 992U}) {
    const std::uint32_t payload = 992 - head;
    EXPECT_EQ(parse_prefix(prefix_of(head, payload), limit).state, State::complete);
    EXPECT_EQ(parse_prefix(prefix_of(head, payload + 1), limit).state, State::too_long);
    EXPECT_EQ(parse_prefix(prefix_of(head + 1, payload), limit).state, State::too_long);
  }
}

TEST(MessageLimit, LengthsDoNotOverflow) {
  for (const auto& [head, payload] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{most, 0}, {0, most}, {most, most}, {most - 7, 8}}) {
    const ParsedPrefix parsed = parse_prefix(prefix_of(head, payload), MessageLimit(64 << 20));
    EXPECT_EQ(parsed.state, State::too_long) << head << " " << payload;
    EXPECT_EQ(parsed.prefix.message_bytes(), 8U + std::size_t{head} + payload);
  }
  EXPECT_EQ(parse_prefix(prefix_of(most, most), MessageLimit(SIZE_MAX)).state, State::complete);
  EXPECT_EQ(parse_prefix(prefix_of(0, 0), MessageLimit(7)).state, State::too_long);
}

TEST(MessageLimit, TheErrorNamesSizeLimitAndOption) {
  const Error error = MessageLimit(64 << 20).exceeded_by({28, (70U << 20) - 36});
  EXPECT_EQ(error.code, ErrorCode::protocol_error);
  EXPECT_EQ(error.scope, ErrorScope::connection);
  EXPECT_EQ(error.initiator, Initiator::peer);
  EXPECT_EQ(
      error.text,
      "message of 70 MiB exceeds message_bytes_max (64 MiB): send less, or raise message_bytes_max on both sides");
  EXPECT_EQ(MessageLimit(64 << 20).exceeded_by({28, (64U << 20) - 35}).text,
            "message of 67108865 bytes exceeds message_bytes_max (64 MiB): send less, or raise message_bytes_max on "
            "both sides");
  EXPECT_EQ(too_long_text(2048, 1000),
            "message of 2 KiB exceeds message_bytes_max (1000 bytes): send less, or raise message_bytes_max on both "
            "sides");
  EXPECT_EQ(too_long_text(1, 0).substr(0, 51), "message of 1 byte exceeds message_bytes_max (0 byte");
}

}  // namespace
}  // namespace hawser::wire
