#include "hawser/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
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

#include "codec/test/codec_testing.h"

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

TEST(Codec, LargeBlocksTravelOutOfBand) {
  const std::string text(out_of_band_bytes_min + 3, 'x');
  const EncodedSize size = encoded_size(text);
  EXPECT_EQ(size.body, 4U);
  // One out-of-band block takes exactly its bytes. A second block begins at a multiple of 8.
  EXPECT_EQ(size.payload, out_of_band_bytes_min + 3);
  EXPECT_EQ(size.pieces, 1U);
  EXPECT_EQ(encoded_size(text, text), (EncodedSize{8, 2 * out_of_band_bytes_min + 8 + 3, 3, false}));
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

TEST(Codec, BlocksTravelInOrderWhateverLiesBetween) {
  const std::vector<std::string> texts{std::string(9'001, 'a'), "b", std::string(8'192, 'c')};
  const std::vector<std::int16_t> numbers(5'001, 7);
  const Message message = encode_message(numbers, texts, true, numbers);
  // The parts are 10,002 bytes at 0, 9,001 at 10,008, 8,192 at 19,016 and 10,002 at 27,208. No padding follows the last
  // one.
  EXPECT_EQ(message.payload().size(), 27'208U + 10'002U);
  Decoder decoder(message.body(), message.payload());
  std::tuple<std::vector<std::int16_t>, std::vector<std::string>, bool, std::vector<std::int16_t>> values;
  ASSERT_TRUE(decode_all(decoder, values));
  EXPECT_EQ(values, std::tuple(numbers, texts, true, numbers));
}

TEST(Codec, AnUnalignedSpanIsCopiedOnceAndOnlyThen) {
  const std::vector<std::int64_t> numbers{1, 2, 3};
  const Message encoded = encode_message(std::span<const std::int64_t>(numbers));
  for (std::size_t shift = 0; shift < 8; ++shift) {
    const Message message = make_message(encoded.body(), {}, shift);
    DecodeArena arena;
    const auto view = decode_message<std::span<const std::int64_t>>(message, {}, &arena);
    EXPECT_TRUE(std::ranges::equal(view, numbers));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.data()) % alignof(std::int64_t), 0U);
    EXPECT_EQ(arena.empty(), (shift + 4) % 8 == 0) << shift;
    EXPECT_EQ(decode_message<std::vector<std::int64_t>>(message), numbers);
  }
  const Message message = make_message(encoded.body());
  EXPECT_EQ(decode_error<std::span<const std::int64_t>>(message).code, ErrorCode::internal);
}

TEST(Codec, AnEmptySpanNeedsNoArena) {
  EXPECT_TRUE(decode_message<std::span<const std::int64_t>>(message_of(std::uint32_t{0})).empty());
}

TEST(Codec, AMovedArenaKeepsItsViews) {
  const std::vector<double> numbers{1.5, 2.5};
  DecodeArena arena;
  const std::byte* copy = arena.copy(std::as_bytes(std::span(numbers)));
  DecodeArena other = std::move(arena);
  EXPECT_TRUE(arena.empty());
  EXPECT_EQ(std::memcmp(copy, numbers.data(), 16), 0);
}

struct Tree {
  int number = 0;
  std::vector<Tree> children;
  std::unique_ptr<Tree> next;
  std::map<std::string, Tree> named;
};

TEST(Codec, TreesTravel) {
  Tree tree{1, {}, nullptr, {}};
  tree.children.resize(2);
  tree.children[1].number = 2;
  tree.next = std::make_unique<Tree>();
  tree.next->named["a"].number = 3;
  const Tree back = round_trip(Tree{1, {}, nullptr, {}});
  EXPECT_EQ(back.number, 1);
  const Message message = encode_message(tree);
  const Tree copy = decode_message<Tree>(message);
  EXPECT_EQ(copy.children[1].number, 2);
  EXPECT_EQ(copy.next->named.at("a").number, 3);
  EXPECT_EQ(encode_message(copy), message);
}

TEST(Codec, TheSenderRefusesWhatIsNestedTooDeep) {
  Tree tree;
  Tree* last = &tree;
  for (std::size_t i = 0; i < encode_depth_max; ++i) last = (last->next = std::make_unique<Tree>()).get();
  EXPECT_FALSE(encoded_size(tree).too_large);
  last->next = std::make_unique<Tree>();
  EXPECT_TRUE(encoded_size(tree).too_large);
}

TEST(Codec, TheSenderRefusesCountsThatTakeMoreThan31Bits) {
  // The bytes are never read: the first pass only adds sizes.
  const char* const somewhere = "";
  EXPECT_FALSE(encoded_size(std::string_view(somewhere, count_max)).too_large);
  EXPECT_TRUE(encoded_size(std::string_view(somewhere, count_max + 1)).too_large);
}

}  // namespace

// A type that is not an aggregate, with a codec of its own.
class Address {
 public:
  Address() = default;
  explicit Address(std::string host, std::uint16_t port) : host_(std::move(host)), port_(port) {}
  const std::string& host() const { return host_; }
  std::uint16_t port() const { return port_; }
  friend bool operator==(const Address&, const Address&) = default;

 private:
  std::string host_;
  std::uint16_t port_ = 0;
};

template <>
struct Codec<Address> {
  static constexpr std::string_view signature = "test.Address";
  static constexpr std::size_t bytes_min = 6;
  static void size(Sizer& sizer, const Address& value) { measure(sizer, value.host(), value.port()); }
  static void encode(Encoder& encoder, const Address& value) { codec::encode(encoder, value.host(), value.port()); }
  static bool decode(Decoder& decoder, Address& value) {
    std::string host;
    std::uint16_t port = 0;
    if (!codec::decode(decoder, host, port)) return false;
    if (port == 0) return decoder.fail("address", "port 0");
    value = Address(std::move(host), port);
    return true;
  }
};

// A plain struct whose codec is not the built-in one, so that vectors of it must not move as a block.
struct Celsius {
  float degrees = 0;
  friend bool operator==(const Celsius&, const Celsius&) = default;
};
template <>
struct Codec<Celsius> {
  static constexpr std::string_view signature = "test.Celsius";
  static constexpr std::size_t bytes_min = 2;
  static void size(Sizer& sizer, const Celsius&) { sizer.add(2); }
  static void encode(Encoder& encoder, const Celsius& value) {
    encoder.write_scalar(static_cast<std::int16_t>(value.degrees * 10));
  }
  static bool decode(Decoder& decoder, Celsius& value) {
    std::int16_t tenths = 0;
    if (!decoder.read_scalar(tenths, "celsius")) return false;
    value.degrees = static_cast<float>(tenths) / 10;
    return true;
  }
};

namespace {

TEST(Codec, TypesWithACodecOfTheirOwnTravelAnywhere) {
  const std::vector<Address> addresses{Address("a", 1), Address("b", 2)};
  EXPECT_EQ(round_trip(addresses), addresses);
  EXPECT_EQ(decode_error<Address>(message_of(std::uint32_t{0}, std::uint16_t{0})).text,
            "can't decode address at byte 6: port 0");
  EXPECT_EQ(encoded_size(std::vector<Celsius>(3)).body, 10U);
  EXPECT_EQ(round_trip(std::vector<Celsius>{{1.5F}}), (std::vector<Celsius>{{1.5F}}));
}

}  // namespace
}  // namespace hawser::codec
