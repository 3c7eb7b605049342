#include "hawser/codec.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "codec/codec_testing.h"

namespace hawser::codec {
namespace {

enum class Color : std::uint16_t { red = 1, blue = 0x1234 };
enum class Switch : bool { off, on };

struct Point {
  std::int32_t x = 0;
  std::int32_t y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};
struct Padded {
  char tag = 0;
  std::int64_t number = 0;
  friend bool operator==(const Padded&, const Padded&) = default;
};
struct Empty {
  friend bool operator==(const Empty&, const Empty&) = default;
};
struct Nested {
  Point point;
  Empty nothing;
  std::vector<Padded> padded;
  std::string text;
  friend bool operator==(const Nested&, const Nested&) = default;
};

static_assert(is_block<int> && is_block<Color> && is_block<std::byte> && is_block<Point>);
static_assert(is_block<std::array<Point, 3>> && is_block<std::chrono::seconds>);
static_assert(!is_block<bool> && !is_block<Padded> && !is_block<Empty> && !is_block<std::pair<int, int>>);
static_assert(is_fixed<Padded> && bytes_min<Padded> == 9 && !is_fixed<Nested>);

TEST(Codec, NumbersKeepTheirValues) {
  EXPECT_TRUE(round_trip(true));
  EXPECT_FALSE(round_trip(false));
  EXPECT_EQ(round_trip('x'), 'x');
  EXPECT_EQ(round_trip(u'\u20ac'), u'\u20ac');
  EXPECT_EQ(round_trip(std::int8_t{-1}), -1);
  EXPECT_EQ(round_trip(std::numeric_limits<std::int64_t>::min()), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(round_trip(std::numeric_limits<std::uint64_t>::max()), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(round_trip(1.5F), 1.5F);
  EXPECT_EQ(round_trip(-0.1), -0.1);
  EXPECT_EQ(round_trip(Color::blue), Color::blue);
  EXPECT_EQ(round_trip(Switch::on), Switch::on);
  EXPECT_EQ(round_trip(std::byte{7}), std::byte{7});
  EXPECT_EQ(round_trip(std::chrono::milliseconds(-5)), std::chrono::milliseconds(-5));
}

TEST(Codec, EncodesLittleEndianFixedWidth) {
  EXPECT_EQ(encode_message(std::uint32_t{0x01020304}), message_of(std::uint32_t{0x01020304}));
  EXPECT_EQ(encode_message(std::string_view("ab")), message_of(std::uint32_t{2}, 'a', 'b'));
  EXPECT_EQ(encode_message(Padded{'t', 7}), message_of('t', std::int64_t{7}));
  EXPECT_EQ(encode_message(std::optional<char>('o')), message_of('\1', 'o'));
  EXPECT_EQ(encode_message(std::vector<bool>{true, false}), message_of(std::uint32_t{2}, '\1', '\0'));
  EXPECT_EQ(encode_message(std::variant<int, char>('v')), message_of('\1', 'v'));
}

TEST(Codec, SequencesOfEveryKindComeBack) {
  EXPECT_EQ(round_trip(std::string()), "");
  EXPECT_EQ(round_trip(std::string("text")), "text");
  EXPECT_EQ(round_trip(std::u16string(u"text")), u"text");
  EXPECT_EQ(round_trip(std::vector<Point>{{1, 2}, {3, 4}}), (std::vector<Point>{{1, 2}, {3, 4}}));
  EXPECT_EQ(round_trip(std::vector<Padded>{{'a', 2}}), (std::vector<Padded>{{'a', 2}}));
  EXPECT_EQ(round_trip(std::vector<Empty>(5)), std::vector<Empty>(5));
  EXPECT_EQ(round_trip(std::vector<bool>{true, false, true}), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(round_trip(std::vector<std::vector<std::string>>{{"a"}, {}, {"b", "c"}}),
            (std::vector<std::vector<std::string>>{{"a"}, {}, {"b", "c"}}));
  EXPECT_EQ(round_trip(std::deque<int>{1, 2}), (std::deque<int>{1, 2}));
  EXPECT_EQ(round_trip(std::list<std::string>{"a", "b"}), (std::list<std::string>{"a", "b"}));
  EXPECT_EQ(round_trip(std::array<int, 3>{1, 2, 3}), (std::array<int, 3>{1, 2, 3}));
  EXPECT_EQ(round_trip(std::array<std::string, 2>{"a", "b"}), (std::array<std::string, 2>{"a", "b"}));
  EXPECT_EQ(round_trip(std::array<int, 0>{}), (std::array<int, 0>{}));
}

TEST(Codec, AssociativeContainersComeBack) {
  EXPECT_EQ(round_trip(std::map<int, std::string>{{1, "a"}, {2, "b"}}),
            (std::map<int, std::string>{{1, "a"}, {2, "b"}}));
  EXPECT_EQ(round_trip(std::unordered_map<std::string, int>{{"a", 1}, {"b", 2}}),
            (std::unordered_map<std::string, int>{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(round_trip(std::set<int>{1, 2}), (std::set<int>{1, 2}));
  EXPECT_EQ(round_trip(std::unordered_set<std::string>{"a"}), (std::unordered_set<std::string>{"a"}));
  EXPECT_EQ(round_trip(std::multimap<int, int>{{1, 1}, {1, 2}}), (std::multimap<int, int>{{1, 1}, {1, 2}}));
}

TEST(Codec, CompositesComeBack) {
  EXPECT_EQ(round_trip(std::optional<std::string>()), std::nullopt);
  EXPECT_EQ(round_trip(std::optional<std::string>("a")), "a");
  EXPECT_EQ(round_trip(std::pair(1, std::string("b"))), std::pair(1, std::string("b")));
  EXPECT_EQ(round_trip(std::tuple(1, true, std::string("b"))), std::tuple(1, true, std::string("b")));
  using Choice = std::variant<std::monostate, int, std::string>;
  for (const Choice& choice : {Choice(), Choice(1), Choice("a")}) EXPECT_EQ(round_trip(choice), choice);
  EXPECT_EQ(*round_trip(std::make_unique<int>(5)), 5);
  EXPECT_EQ(round_trip(std::unique_ptr<int>()), nullptr);
  const Nested nested{{1, 2}, {}, {{'a', 3}}, "text"};
  EXPECT_EQ(round_trip(nested), nested);
}

TEST(Codec, LargeBlocksTravelOutOfBandAndPadded) {
  const std::string text(out_of_band_bytes_min + 3, 'x');
  const EncodedSize size = encoded_size(text);
  EXPECT_EQ(size.body, 4U);
  EXPECT_EQ(size.payload, out_of_band_bytes_min + 8);
  EXPECT_EQ(size.pieces, 2U);
  EXPECT_EQ(round_trip(text), text);

  const std::vector<std::int64_t> numbers(out_of_band_bytes_min / 8, 5);
  EXPECT_EQ(encoded_size(numbers), (EncodedSize{4, out_of_band_bytes_min, 1, false}));
  EXPECT_EQ(round_trip(numbers), numbers);
  EXPECT_EQ(round_trip(std::deque<int>(10'000, 7)), std::deque<int>(10'000, 7));
}

TEST(Codec, ViewsPointIntoTheMessage) {
  const std::string large(out_of_band_bytes_min, 'x');
  const Message message = encode_message(std::string_view("small"), std::string_view(large));
  Decoder decoder(message.body(), message.payload());
  std::tuple<std::string_view, std::string_view> values;
  ASSERT_TRUE(decode_all(decoder, values));
  EXPECT_EQ(std::get<0>(values), "small");
  EXPECT_EQ(static_cast<const void*>(std::get<0>(values).data()), message.body().data() + 4);
  EXPECT_EQ(std::get<1>(values), large);
  EXPECT_EQ(static_cast<const void*>(std::get<1>(values).data()), message.payload().data());
}

}  // namespace
}  // namespace hawser::codec
