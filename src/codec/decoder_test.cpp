#include "hawser/codec/decoder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "codec/codec_testing.h"

// What a peer may send that no Encoder would.
namespace hawser::codec {
namespace {

struct Leaf {
  static constexpr std::size_t hawser_base_fields = 1;
  std::uint16_t number = 0;
  std::string note;
};
std::map<std::string, std::optional<int>> make_map() { return {{"a", 1}, {"b", std::nullopt}}; }
struct Everything {
  bool flag = true;
  std::uint64_t number = 7;
  std::string text = "text";
  std::string large = std::string(9'001, 'l');
  std::vector<std::vector<std::string>> texts = std::vector<std::vector<std::string>>(2, {"a", "b"});
  std::vector<std::int32_t> numbers = std::vector<std::int32_t>(3'001, 5);
  std::map<std::string, std::optional<int>> map = make_map();
  std::set<int> set{1, 2};
  std::deque<bool> flags{true, false};
  std::variant<std::monostate, int, std::string> choice = "choice";
  std::unique_ptr<std::string> pointer = std::make_unique<std::string>("pointer");
  std::vector<Leaf> leaves = std::vector<Leaf>(2, Leaf{2, std::string(9'000, 'n')});
  std::array<char, 3> array{'x', 'y', 'z'};
};

void expect_described(const Error& error) {
  EXPECT_TRUE(error.code == ErrorCode::protocol_error || error.code == ErrorCode::limit_exceeded) << error.describe();
  EXPECT_EQ(error.initiator, Initiator::peer);
  EXPECT_NE(error.text.find("can't decode "), std::string::npos) << error.text;
}

TEST(Decoder, EveryTruncationOfTheBodyFails) {
  const Message message = encode_message(Everything());
  EXPECT_EQ(encode_message(decode_message<Everything>(message)), message);
  for (std::size_t cut = 0; cut < message.body().size(); ++cut) {
    expect_described(decode_error<Everything>(make_message(message.body().first(cut), message.payload())));
  }
}

TEST(Decoder, EveryTruncationOfThePayloadFails) {
  const Message message = encode_message(Everything());
  for (std::size_t cut = 0; cut < message.payload().size(); cut += cut % 1'000 < 16 ? 1 : 61) {
    expect_described(decode_error<Everything>(make_message(message.body(), message.payload().first(cut))));
  }
}

TEST(Decoder, TrailingBytesFail) {
  const Message message = encode_message(Everything());
  Message longer = message;
  longer.body_block.push_back(std::byte{0});
  EXPECT_NE(decode_error<Everything>(longer).text.find("bytes follow the last value"), std::string::npos);
  longer = message;
  longer.payload_block.resize(longer.payload_block.size() + 8);
  EXPECT_NE(decode_error<Everything>(longer).text.find("payload follows the last value"), std::string::npos);
}

TEST(Decoder, WhatNoValueClaimsOfThePayloadIsLeftForAttachments) {
  Message message = encode_message(std::string(9'000, 'x'));
  message.payload_block.resize(message.payload_block.size() + 5, std::byte{'a'});
  Decoder decoder(message.body(), message.payload());
  std::string text;
  ASSERT_TRUE(decode(decoder, text));
  EXPECT_TRUE(decoder.finish_body());
  EXPECT_EQ(as_text(decoder.payload_rest()), "aaaaa");
  EXPECT_FALSE(decoder.finish());
}

TEST(Decoder, FlippedBitsFailOrDecodeToSomethingThatEncodes) {
  const Message message = encode_message(Everything());
  for (std::size_t bit = 0; bit < message.body().size() * 8; ++bit) {
    if (bit > 4'000 && bit % 7 != 0) continue;
    Message flipped = message;
    flipped.body_block[bit / 8] ^= std::byte{1} << (bit % 8);
    Decoder decoder(flipped.body(), flipped.payload());
    std::tuple<Everything> value;
    if (decode_all(decoder, value)) {
      encode_message(value);
    } else {
      expect_described(decoder.error());
    }
  }
}

TEST(Decoder, LyingCountsFailBeforeAnythingIsAllocated) {
  // 0x7fffffff elements announced, 6 bytes present.
  const Message message = message_of(std::uint32_t{0x7fff'ffff}, std::uint32_t{0}, std::uint16_t{0});
  expect_described(decode_error<std::string>(message));
  expect_described(decode_error<std::string_view>(message));
  expect_described(decode_error<std::vector<std::int64_t>>(message));
  expect_described(decode_error<std::vector<std::string>>(message));
  expect_described(decode_error<std::vector<bool>>(message));
  expect_described(decode_error<std::deque<std::optional<int>>>(message));
  expect_described(decode_error<std::map<int, int>>(message));
  expect_described(decode_error<std::set<std::string>>(message));
  expect_described(decode_error<std::vector<std::vector<std::vector<int>>>>(message));
  expect_described(decode_error<std::vector<Leaf>>(message));
}

TEST(Decoder, LyingOutOfBandCountsFail) {
  const Message message = message_of(std::uint32_t{0xffff'ffff});
  expect_described(decode_error<std::string>(message));
  expect_described(decode_error<std::vector<std::int64_t>>(message));
  EXPECT_EQ(decode_error<std::vector<std::string>>(message).code, ErrorCode::protocol_error);
}

TEST(Decoder, PaddingOfThePayloadMustBeZero) {
  using Two = std::pair<std::string, std::string>;
  Message message = encode_message(Two(std::string(8'193, 'x'), std::string(8'192, 'y')));
  ASSERT_EQ(message.payload().size(), 8'200U + 8'192U);
  message.payload_block[8'195] = std::byte{1};
  EXPECT_NE(decode_error<Two>(message).text.find("padding"), std::string::npos);
}

TEST(Decoder, ElementsWithoutBytesAreBounded) {
  struct Empty {};
  EXPECT_EQ(decode_message<std::vector<Empty>>(message_of(std::uint32_t{1'000})).size(), 1'000U);
  const Error error = decode_error<std::vector<Empty>>(message_of(std::uint32_t{0x7fff'ffff}));
  EXPECT_EQ(error.code, ErrorCode::limit_exceeded);
  // In the whole message, not for each sequence.
  using Many = std::vector<std::vector<Empty>>;
  const Message message = encode_message(Many(3, std::vector<Empty>(30'000)));
  EXPECT_EQ(decode_error<Many>(message).code, ErrorCode::limit_exceeded);
  EXPECT_EQ(decode_message<Many>(message, {.empty_elements_max = 90'000}).size(), 3U);
}

struct Chain {
  std::unique_ptr<Chain> next;
};
struct Tree {
  std::vector<Tree> children;
};

TEST(Decoder, DepthBombsFail) {
  const std::vector<std::byte> pointers(100'000, std::byte{1});
  EXPECT_EQ(decode_error<Chain>(make_message(pointers)).code, ErrorCode::limit_exceeded);

  std::vector<std::byte> counts;
  for (int i = 0; i < 100'000; ++i) counts.insert(counts.end(), {std::byte{1}, std::byte{}, std::byte{}, std::byte{}});
  EXPECT_EQ(decode_error<Tree>(make_message(counts)).code, ErrorCode::limit_exceeded);
}

TEST(Decoder, DepthCountsWhatIsNestedOnly) {
  const Message in_a_row = encode_message(std::vector<Tree>(1'000));
  EXPECT_EQ(decode_message<std::vector<Tree>>(in_a_row, {.depth_max = 1}).size(), 1'000U);
  EXPECT_EQ(decode_error<std::vector<Tree>>(in_a_row, {.depth_max = 0}).code, ErrorCode::limit_exceeded);

  std::vector<std::byte> pointers(32, std::byte{1});
  pointers.push_back(std::byte{0});
  EXPECT_NE(decode_message<Chain>(make_message(pointers)).next, nullptr);
  pointers.insert(pointers.begin(), std::byte{1});
  EXPECT_EQ(decode_error<Chain>(make_message(pointers)).code, ErrorCode::limit_exceeded);
}

TEST(Decoder, MemoryIsBounded) {
  const Message message = encode_message(std::vector<std::string>(100, "x"));
  EXPECT_EQ(decode_error<std::vector<std::string>>(message, {.memory_bytes_max = 1'000}).code,
            ErrorCode::limit_exceeded);
}

TEST(Decoder, ValuesOutsideTheirRangeFail) {
  EXPECT_EQ(decode_error<bool>(message_of('\2')).text, "can't decode bool at byte 1: neither 0 nor 1");
  expect_described(decode_error<std::optional<int>>(message_of('\2', 5)));
  expect_described(decode_error<std::unique_ptr<int>>(message_of('\2', 5)));
  expect_described(decode_error<std::variant<int, char>>(message_of('\2', 5)));
  expect_described(decode_error<std::variant<int, char>>(message_of('\xff', 5)));
}

TEST(Decoder, RepeatedKeysFail) {
  EXPECT_NE((decode_error<std::map<int, int>>(message_of(2, 1, 5, 1, 6)).text.find("a key comes twice")),
            std::string::npos);
  expect_described(decode_error<std::set<int>>(message_of(2, 1, 1)));
}

TEST(Decoder, ErrorsSayWhatWhereAndHowMuch) {
  EXPECT_EQ(decode_error<std::string>(message_of(10, 'a')).text,
            "can't decode sequence at byte 4: the body has fewer bytes than announced (10)");
}

}  // namespace
}  // namespace hawser::codec
