#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "codec/test/codec_testing.h"

// Defines one struct in each of its versions and sends messages from each version to each other.
namespace hawser::codec {
namespace {

struct First {
  static constexpr std::size_t hawser_base_fields = 2;
  std::int32_t id = 0;
  std::string name;
  friend bool operator==(const First&, const First&) = default;
};
struct Second {
  static constexpr std::size_t hawser_base_fields = 2;
  std::int32_t id = 0;
  std::string name;
  std::vector<std::int32_t> scores{1};
  friend bool operator==(const Second&, const Second&) = default;
};
struct Third {
  static constexpr std::size_t hawser_base_fields = 2;
  std::int32_t id = 0;
  std::string name;
  std::vector<std::int32_t> scores{1};
  std::string comment = "none";
  friend bool operator==(const Third&, const Third&) = default;
};
struct Contradicting {
  static constexpr std::size_t hawser_base_fields = 2;
  std::int32_t id = 0;
  std::string name;
  std::string scores;
};
struct OtherBase {
  static constexpr std::size_t hawser_base_fields = 1;
  std::int32_t id = 0;
  std::string name;
};

TEST(Evolution, TheEncodingIsLengthBaseAndSignedAppendedFields) {
  EXPECT_EQ(encode_message(First{7, "n"}), message_of(std::uint32_t{9}, 7, std::uint32_t{1}, 'n'));
  EXPECT_EQ(encode_message(Second{7, "n", {5}}),
            message_of(std::uint32_t{21}, 7, std::uint32_t{1}, 'n', type_signature<std::vector<std::int32_t>>,
                       std::uint32_t{1}, 5));
}

TEST(Evolution, AllVersionsShareASignature) {
  EXPECT_EQ(type_signature<First>, type_signature<Second>);
  EXPECT_EQ(type_signature<First>, type_signature<Third>);
  EXPECT_EQ(type_signature<std::vector<First>>, type_signature<std::vector<Third>>);
  EXPECT_NE(type_signature<First>, type_signature<OtherBase>);
  struct Plain {
    std::int32_t id;
    std::string name;
  };
  EXPECT_NE(type_signature<First>, type_signature<Plain>);
}

TEST(Evolution, TheSameVersionComesBackWhole) {
  const Third third{1, "n", {2, 3}, "c"};
  EXPECT_EQ(round_trip(third), third);
}

TEST(Evolution, WhoKnowsFewerFieldsSkipsTheRest) {
  const Message message = encode_message(Third{1, "n", {2, 3}, "c"});
  EXPECT_EQ(decode_message<First>(message), (First{1, "n"}));
  EXPECT_EQ(decode_message<Second>(message), (Second{1, "n", {2, 3}}));
}

TEST(Evolution, WhoKnowsMoreFieldsKeepsTheirDefaults) {
  EXPECT_EQ(decode_message<Third>(encode_message(First{1, "n"})), (Third{1, "n", {1}, "none"}));
  EXPECT_EQ(decode_message<Third>(encode_message(Second{1, "n", {}})), (Third{1, "n", {}, "none"}));
}

TEST(Evolution, SequencesOfThemSkipAndKeepOneByOne) {
  // Base fields travel out of band and appended fields never do, so the payload holds the fields that every version
  // has.
  const std::string large(9'000, 'l');
  const std::vector<Third> sent{{1, large, std::vector<std::int32_t>(5'000, 6), "c"}, {2, "n", {}, large}};
  const Message message = encode_message(sent, large);
  EXPECT_EQ(message.payload().size(), 2 * large.size());

  Decoder decoder(message.body(), message.payload());
  std::tuple<std::vector<First>, std::string> values;
  ASSERT_TRUE(decode_all(decoder, values)) << decoder.error().describe();
  EXPECT_EQ(std::get<0>(values), (std::vector<First>{{1, large}, {2, "n"}}));
  EXPECT_EQ(std::get<1>(values), large);

  Decoder same(message.body(), message.payload());
  std::tuple<std::vector<Third>, std::string> all;
  ASSERT_TRUE(decode_all(same, all));
  EXPECT_EQ(std::get<0>(all), sent);

  const std::vector<Third> grown = decode_message<std::vector<Third>>(encode_message(std::get<0>(values)));
  EXPECT_EQ(grown, (std::vector<Third>{{1, large, {1}, "none"}, {2, "n", {1}, "none"}}));
}

TEST(Evolution, AnAppendedFieldOfAnotherTypeIsAnError) {
  const Error error = decode_error<Second>(encode_message(Contradicting{1, "n", "scores"}));
  EXPECT_EQ(error.code, ErrorCode::protocol_error);
  EXPECT_NE(error.text.find("the sender gave it another type"), std::string::npos) << error.text;
}

TEST(Evolution, AnAppendedFieldOutOfBandIsAnError) {
  const Message message =
      message_of(std::uint32_t{16}, 7, std::uint32_t{0}, type_signature<std::vector<std::int32_t>>, out_of_band_flag);
  EXPECT_NE(decode_error<Second>(message).text.find("out of band"), std::string::npos);
}

struct Inner {
  static constexpr std::size_t hawser_base_fields = 0;
  std::optional<std::string> text;
  friend bool operator==(const Inner&, const Inner&) = default;
};
struct Outer {
  static constexpr std::size_t hawser_base_fields = 1;
  Inner base;
  Inner appended;
  std::vector<Inner> many;
  friend bool operator==(const Outer&, const Outer&) = default;
};

TEST(Evolution, StructsThatEvolveNest) {
  const std::string large(9'000, 'x');
  const Outer outer{{"a"}, {large}, {{"b"}, {large}}};
  EXPECT_EQ(round_trip(outer), outer);
  EXPECT_EQ(encoded_size(outer).payload, 0U);
  EXPECT_EQ(round_trip(std::vector<Outer>(3, outer)), std::vector<Outer>(3, outer));
}

TEST(Evolution, LengthsThatReachBeyondTheirContainerFail) {
  // The length of Outer ends within Inner.
  const Message message = message_of(std::uint32_t{6}, std::uint32_t{4}, std::uint32_t{0});
  EXPECT_EQ(decode_error<Outer>(message).code, ErrorCode::protocol_error);
  EXPECT_EQ(decode_error<First>(message_of(std::uint32_t{0xffff'ffff}, 1)).code, ErrorCode::protocol_error);
  // Every version sends the base fields.
  EXPECT_EQ(decode_error<First>(message_of(std::uint32_t{4}, 1)).code, ErrorCode::protocol_error);
}

}  // namespace
}  // namespace hawser::codec
