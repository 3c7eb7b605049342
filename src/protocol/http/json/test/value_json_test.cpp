#include "protocol/http/json/value_json.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "hawser/codec.h"
#include "json/json_cases_testing.h"
#include "rpc/server/describer.h"

namespace hawser::protocol::http {

// Types with linkage, as those of applications.
namespace value_json_test {

enum class Color : std::uint8_t { red, green, blue = 5, dark = 200 };
enum Plain { first, second };
struct Point {
  std::int32_t x = 0;
  std::int32_t y = 0;
  friend bool operator==(const Point&, const Point&) = default;
};
struct Circle {
  Point centre = {};
  double radius = 0;
  friend bool operator==(const Circle&, const Circle&) = default;
};
struct Shape {
  std::string name = {};
  std::variant<Circle, std::string, int> body = {};
  std::optional<Color> color = {};
  std::vector<Point> corners = {};
  std::map<std::string, std::vector<int>> tags = {};
  friend bool operator==(const Shape&, const Shape&) = default;
};
struct Tree {
  std::string name = {};
  std::vector<Tree> branches = {};
  friend bool operator==(const Tree&, const Tree&) = default;
};
struct Chain {
  int number = 0;
  std::unique_ptr<Chain> next = {};
};
struct Grown {
  int a = 1;
  std::string b = "b";
  std::optional<int> c = {};
  int d = 4;
  static constexpr std::size_t hawser_base_fields = 2;
  friend bool operator==(const Grown&, const Grown&) = default;
};
struct Nothing {
  friend bool operator==(const Nothing&, const Nothing&) = default;
};
struct Address {
  std::uint32_t number = 0;
};

template <class T>
void take(T) {}

}  // namespace value_json_test
}  // namespace hawser::protocol::http

template <>
struct hawser::codec::Codec<hawser::protocol::http::value_json_test::Address> {
  static constexpr std::string_view signature = "app.Address";
  static constexpr std::size_t bytes_min = 4;
  using Address = protocol::http::value_json_test::Address;
  static void size(Sizer& sizer, const Address& value) { measure(sizer, value.number); }
  static void encode(Encoder& encoder, const Address& value) { codec::encode(encoder, value.number); }
  static bool decode(Decoder& decoder, Address& value) { return codec::decode(decoder, value.number); }
};

namespace hawser::protocol::http {
namespace {

using namespace value_json_test;

template <class T>
ValueTypes types_of() {
  detail::ServedMethod method;
  method.describe = &detail::describe_method<&take<T>>;
  Result<ValueTypes> types = ValueTypes::check(rpc::Describer(method).take());
  EXPECT_TRUE(types);
  return std::move(*types);
}

struct Encoded {
  std::string body;
  std::string payload;
};
template <class T>
Encoded encode(const T& value) {
  const codec::EncodedSize size = codec::encoded_size(value);
  Encoded out{std::string(size.body, '\0'), {}};
  std::vector<ConstBuffer> pieces(size.pieces);
  codec::Encoder encoder(reinterpret_cast<std::byte*>(out.body.data()), pieces.data());
  codec::encode_all(encoder, value);
  for (const ConstBuffer& piece : pieces) out.payload += as_text({piece.data, piece.size});
  return out;
}

template <class T>
std::string json_of(const T& value) {
  const Encoded encoded = encode(value);
  const ValueTypes types = types_of<T>();
  const Result<std::string> json =
      value_to_json(types, types.description().arguments[0], as_bytes(encoded.body), as_bytes(encoded.payload));
  return json ? *json : json.error().describe();
}
template <class T>
std::string refusal_of(std::string_view json) {
  const ValueTypes types = types_of<T>();
  const Result<std::string> bytes = value_from_json(types, types.description().arguments[0], json);
  return bytes ? "no error" : bytes.error().text;
}
template <class T>
std::optional<T> from(std::string_view json) {
  const ValueTypes types = types_of<T>();
  const Result<std::string> bytes = value_from_json(types, types.description().arguments[0], json);
  if (!bytes) {
    ADD_FAILURE() << bytes.error().text;
    return std::nullopt;
  }
  codec::Decoder decoder(as_bytes(*bytes));
  std::tuple<T> value;
  if (!codec::decode_all(decoder, value)) {
    ADD_FAILURE() << decoder.error().describe();
    return std::nullopt;
  }
  return std::move(std::get<0>(value));
}
template <class T>
void expect_both(const T& value, std::string_view json) {
  EXPECT_EQ(json_of(value), json);
  const std::optional<T> back = from<T>(json);
  EXPECT_TRUE(back && *back == value) << json;
}

TEST(ValueJson, NumbersKeepTheirValue) {
  expect_both(true, "true");
  expect_both(std::int8_t{-128}, "-128");
  expect_both(std::uint16_t{65535}, "65535");
  expect_both(std::int32_t{-7}, "-7");
  expect_both(std::int64_t{1} << 53, "9007199254740992");
  expect_both((std::int64_t{1} << 53) + 1, "\"9007199254740993\"");
  expect_both(std::numeric_limits<std::int64_t>::min(), "\"-9223372036854775808\"");
  expect_both(std::numeric_limits<std::uint64_t>::max(), "\"18446744073709551615\"");
  expect_both('x', "\"x\"");
  expect_both('\n', "10");
  expect_both(char16_t{0x20ac}, "8364");
  expect_both(1.5F, "1.5");
  expect_both(0.1, "0.1");
  expect_both(-std::numeric_limits<double>::infinity(), "\"-Infinity\"");
  expect_both(std::numeric_limits<float>::max(), "3.4028235e+38");
  expect_both(std::numeric_limits<float>::lowest(), "-3.4028235e+38");
  expect_both(std::numeric_limits<float>::denorm_min(), "1e-45");
  expect_both(std::numeric_limits<double>::max(), "1.7976931348623157e+308");
  EXPECT_EQ(json_of(std::numeric_limits<float>::quiet_NaN()), "\"NaN\"");
  EXPECT_EQ(from<int>("1e3"), 1000);
  EXPECT_EQ(from<std::int64_t>("-9007199254740991.0"), -9007199254740991);
  EXPECT_EQ(from<std::int64_t>("\"-5\""), -5);
  EXPECT_EQ(from<double>("3"), 3);
}

TEST(ValueJson, CharactersThatCanBePrintedAreTexts) {
  expect_both(' ', "\" \"");
  expect_both('~', "\"~\"");
  expect_both('\x1f', "31");
  expect_both('\x7f', "127");
  expect_both(char16_t{'x'}, "120");
}

TEST(ValueJson, NumbersThatDoNotFitAreRefused) {
  for (const std::string_view json : {"128", "-129", "1.5", "1e300", "\"\"", "\"7x\"", "true", "null", "[]", "{}"}) {
    EXPECT_NE(refusal_of<std::int8_t>(json), "no error") << json;
  }
  EXPECT_NE(refusal_of<std::int8_t>("300").find("give an integer from -128 to 127"), std::string::npos);
  for (const std::string_view json : {"18446744073709551616", "-1", "9007199254740993.0", "9007199254740994.0"}) {
    EXPECT_NE(refusal_of<std::uint64_t>(json), "no error") << json;
  }
  EXPECT_NE(refusal_of<float>("1e39"), "no error");
  EXPECT_EQ(refusal_of<float>("3.4028235677973362e38"), "no error");
  EXPECT_NE(refusal_of<float>("3.4028235677973366e38"), "no error");  // The nearest would be 2^128.
  EXPECT_NE(refusal_of<double>("1e999"), "no error");
  EXPECT_NE(refusal_of<bool>("1"), "no error");
}

TEST(ValueJson, EnumerationsHaveTheirNames) {
  expect_both(Color::green, "\"green\"");
  expect_both(Color::blue, "\"blue\"");
  expect_both(Color::dark, "200");  // Names are known up to 63.
  expect_both(static_cast<Color>(3), "3");
  EXPECT_EQ(from<Color>("5"), Color::blue);
  EXPECT_NE(refusal_of<Color>("\"purple\""), "no error");
  expect_both(second, "1");  // Its underlying type is not fixed.
}

TEST(ValueJson, TextsAndBytes) {
  expect_both(std::string("a \"b\"\n\xe2\x82\xac"), "\"a \\\"b\\\"\\n\xe2\x82\xac\"");
  expect_both(std::string("\xff\x01"), "{\"base64\":\"/wE=\"}");
  expect_both(std::vector<std::uint8_t>{1, 2, 3}, "\"AQID\"");
  expect_both(std::vector<std::byte>{}, "\"\"");
  EXPECT_EQ(from<std::vector<std::uint8_t>>("[1, 2]"), (std::vector<std::uint8_t>{1, 2}));
  EXPECT_EQ(from<std::string>(R"("\u20ac\ud83d\ude00")"), "\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_NE(refusal_of<std::string>("\"\xff\""), "no error");
  EXPECT_NE(refusal_of<std::string>(R"("\ud83d")"), "no error");
  EXPECT_NE(refusal_of<std::string>("\"a\nb\""), "no error");
  EXPECT_NE(refusal_of<std::string>(R"({"base64":"?"})"), "no error");
  EXPECT_NE(refusal_of<std::string>("{}"), "no error");
  EXPECT_NE(refusal_of<std::vector<std::uint8_t>>("\"A\""), "no error");
  EXPECT_EQ(json_of(std::string("\x1b[2J\xc2\x9b")), R"("\u001b[2J\u009b")");  // Not for the terminal.
}

TEST(ValueJson, SequencesOfEveryKind) {
  expect_both(std::vector<int>{1, -2}, "[1,-2]");
  expect_both(std::vector<bool>{true, false}, "[true,false]");
  expect_both(std::deque<std::string>{"a", ""}, R"(["a",""])");
  expect_both(std::list<std::vector<int>>{{1}, {}}, "[[1],[]]");
  expect_both(std::array<double, 2>{1, 2}, "[1,2]");
  expect_both(std::set<int>{1, 2}, "[1,2]");
  expect_both(std::pair<int, std::string>{1, "x"}, R"([1,"x"])");
  expect_both(std::tuple<>{}, "[]");
  const auto refused = refusal_of<std::array<int, 2>>("[1]");
  EXPECT_TRUE(refused.ends_with("has 1 element")) << refused;
  EXPECT_NE((refusal_of<std::array<int, 2>>("[1,2,3]")), "no error");
  EXPECT_NE((refusal_of<std::pair<int, int>>("[1]")), "no error");
  EXPECT_NE((refusal_of<std::pair<int, int>>("[1,2,3]")), "no error");
}

TEST(ValueJson, SequencesInThePayload) {
  std::vector<int> numbers(5000);
  numbers[4999] = 7;
  const auto pair = std::pair(std::string(9001, 'x'), numbers);
  EXPECT_FALSE(encode(pair).payload.empty());
  const auto back = from<std::pair<std::string, std::vector<int>>>(json_of(pair));
  EXPECT_TRUE(back && *back == pair);
}

TEST(ValueJson, Maps) {
  expect_both(std::map<std::string, int>{{"a", 1}, {"b", 2}}, R"({"a":1,"b":2})");
  expect_both(std::map<int, bool>{{-1, true}}, R"({"-1":true})");
  expect_both(std::map<bool, int>{{false, 1}}, R"({"false":1})");
  expect_both(std::map<Color, int>{{Color::red, 1}}, R"({"red":1})");
  expect_both(std::map<Point, int, decltype([](const Point& a, const Point& b) { return a.x < b.x; })>{{{1, 2}, 3}},
              R"([[{"x":1,"y":2},3]])");
  expect_both(std::map<std::string, int>{{"\xff", 1}}, R"([[{"base64":"/w=="},1]])");
  expect_both(std::multimap<int, int>{{1, 1}, {1, 2}}, "[[1,1],[1,2]]");
  expect_both(std::unordered_map<std::string, int>{{"a", 1}}, R"({"a":1})");
  EXPECT_NE((refusal_of<std::map<int, int>>(R"({"x":1})")), "no error");
  EXPECT_NE((refusal_of<std::map<int, int>>("[[1]]")), "no error");
  EXPECT_NE((refusal_of<std::map<int, int>>("[1]")), "no error");
}

TEST(ValueJson, Structs) {
  const Shape shape{"s", Circle{{1, 2}, 3}, Color::blue, {{4, 5}}, {{"k", {6}}}};
  expect_both(shape, R"({"name":"s","body":{"hawser::protocol::http::value_json_test::Circle":{"centre":{"x":1,"y":2},)"
                     R"("radius":3}},"color":"blue","corners":[{"x":4,"y":5}],"tags":{"k":[6]}})");
  EXPECT_EQ(from<Shape>(R"({"tags":{},"corners":[],"body":{"2":7},"name":""})"), (Shape{"", 7, {}, {}, {}}));
  expect_both(Nothing{}, "{}");
  expect_both(Tree{"a", {{"b", {}}, {"c", {{"d", {}}}}}},
              R"({"name":"a","branches":[{"name":"b","branches":[]},{"name":"c","branches":[{"name":"d",)"
              R"("branches":[]}]}]})");
  Chain chain{1, std::make_unique<Chain>(Chain{2, nullptr})};
  EXPECT_EQ(json_of(chain), R"({"number":1,"next":{"number":2,"next":null}})");
  EXPECT_NE(refusal_of<Point>(R"({"x":1})").find("the field \"y\" is missing"), std::string::npos);
  EXPECT_NE(refusal_of<Point>(R"({"x":1,"y":2,"z":3})").find("there is no field \"z\""), std::string::npos);
  EXPECT_NE(refusal_of<Point>(R"({"x":1,"x":2,"y":2})").find("given twice"), std::string::npos);
  EXPECT_NE(refusal_of<Shape>(R"({"corners":[{"x":1,"y":2},{"x":"a"}]})").find("JSON: .corners[1].x: int32: give"),
            std::string::npos)
      << refusal_of<Shape>(R"({"corners":[{"x":1,"y":2},{"x":"a"}]})");
}

TEST(ValueJson, OptionalValuesAndVariants) {
  expect_both(std::optional<int>(1), "1");
  expect_both(std::optional<int>(), "null");
  expect_both(std::variant<int, std::string>("x"), R"({"string":"x"})");
  expect_both(std::variant<int, std::vector<int>, int>(std::in_place_index<2>, 4), R"({"2":4})");
  expect_both(std::chrono::milliseconds(250), "250");
  using Either = std::variant<int, std::string>;
  for (const std::string_view json : {"1", "{}", R"({"int32":1,"string":"x"})", R"({"7":1})", R"({"":1})"}) {
    EXPECT_NE(refusal_of<Either>(json), "no error") << json;
  }
}

TEST(ValueJson, AppendedFieldsMayBeLeftOut) {
  expect_both(Grown{}, R"({"a":1,"b":"b","c":null,"d":4})");
  EXPECT_EQ(from<Grown>(R"({"a":2,"b":""})"), (Grown{2, "", {}, 4}));
  EXPECT_EQ(from<Grown>(R"({"a":2,"b":"","d":9})"), (Grown{2, "", {}, 9}));
  EXPECT_NE(refusal_of<Grown>(R"({"a":2})"), "no error");
}

TEST(ValueJson, TypesWithoutJsonAreNamed) {
  EXPECT_NE(json_of(Address{1}).find("app.Address"), std::string::npos);
  EXPECT_NE(refusal_of<Address>("1").find("app.Address"), std::string::npos);
}

TEST(ValueJson, ArgumentsAreAListOrTheOnlyOne) {
  detail::ServedMethod method;
  method.describe = &detail::describe_method<&take<std::vector<int>>>;
  const ValueTypes one = *ValueTypes::check(rpc::Describer(method).take());
  const auto& types = one.description().arguments;
  EXPECT_TRUE(arguments_from_json(one, types, "[[1,2]]"));
  EXPECT_FALSE(arguments_from_json(one, types, "[1,2]"));
  EXPECT_FALSE(arguments_from_json(one, types, ""));
  EXPECT_FALSE(arguments_from_json(one, types, "[]"));
  EXPECT_EQ(arguments_from_json(one, {}, " "), "");
  EXPECT_EQ(arguments_from_json(one, {}, "{}"), "");
  EXPECT_EQ(arguments_from_json(one, {}, "[]"), "");
  for (const std::string_view json : {R"({"a":1})", "[1]", "1", "null"}) {
    EXPECT_FALSE(arguments_from_json(one, {}, json)) << json;
  }
}

TEST(ValueJson, HostileJsonIsRefused) {
  const ValueTypes trees = types_of<Tree>();
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"name":"","branches":[)";
  EXPECT_NE(refusal_of<Tree>(deep).find("nested more than 64 deep"), std::string::npos);
  EXPECT_NE(refusal_of<std::vector<int>>(std::string(1'000'000, '[')), "no error");
  for (const std::string_view json : {"", " ", "[", "[1,]", "[1 2]", "[1]]", "{", "nul", "01", "+1", "[1]x", "'a'",
                                      "NaN", "/**/[]", "\xef\xbb\xbf", "[\"\\x41\"]"}) {
    EXPECT_NE(refusal_of<std::vector<int>>(json), "no error") << json;
  }
}

template <class T>
bool is_invalid(std::string_view json) {
  return refusal_of<T>(json).find("invalid JSON at byte ") != std::string::npos;
}

TEST(ValueJson, IsReadAsStrictlyAsEverywhere) {
  namespace cases = json::testing;
  using Reals = std::vector<double>;
  for (const std::string_view one : cases::invalid_numbers) {
    EXPECT_TRUE(is_invalid<double>(one)) << one;
    EXPECT_TRUE(is_invalid<Reals>("[1," + std::string(one) + "]")) << one;
  }
  for (const std::string_view one : cases::invalid_texts) {
    EXPECT_TRUE(is_invalid<std::string>(one)) << one;
    EXPECT_TRUE(is_invalid<Shape>("{\"name\":" + std::string(one) + "}")) << one;
  }
  for (const std::string_view one : cases::invalid_lists) EXPECT_TRUE(is_invalid<Reals>(one)) << one;
  for (const std::string_view one : cases::invalid_objects) {
    EXPECT_TRUE((is_invalid<std::map<std::string, int>>(one))) << one;
  }
  for (const std::string_view one : cases::invalid_values) EXPECT_TRUE(is_invalid<bool>(one)) << one;
  for (const auto& [written, value] : cases::valid_numbers) {
    const auto read = from<double>(written);
    EXPECT_EQ(read, value) << written;
    EXPECT_EQ(std::signbit(read.value_or(0)), std::signbit(value)) << written;
  }
  for (const auto& [written, text] : cases::valid_texts) EXPECT_EQ(from<std::string>(written), text) << written;
}

TEST(ValueJson, HostileBytesAreRefused) {
  const ValueTypes types = types_of<std::vector<std::string>>();
  const auto refused = [&](std::string_view body, std::string_view payload = {}) {
    return !value_to_json(types, types.description().arguments[0], as_bytes(body), as_bytes(payload));
  };
  using namespace std::string_view_literals;
  EXPECT_TRUE(refused(""sv));
  EXPECT_TRUE(refused("\1\0\0\0"sv));
  EXPECT_TRUE(refused("\xff\xff\xff\x7f"sv));
  EXPECT_TRUE(refused("\xff\xff\xff\xff"sv));
  EXPECT_TRUE(refused("\1\0\0\0\xff\xff\xff\xff"sv));
  EXPECT_TRUE(refused("\0\0\0\0x"sv));
  EXPECT_TRUE(refused("\0\0\0\0"sv, "x"sv));
  EXPECT_FALSE(refused("\0\0\0\0"sv));
}

// Descriptions that a hostile server could send.
TEST(ValueTypes, HostileDescriptionsAreRefused) {
  using schema::Description, schema::Kind, schema::Type;
  const auto refused = [](Description description) { return !ValueTypes::check(std::move(description)); };
  EXPECT_TRUE(refused({.arguments = {0}}));
  EXPECT_TRUE(refused({.result = 4'294'967'295U}));
  EXPECT_TRUE(refused({.types = {{.kind = static_cast<Kind>(200)}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::sequence, .parts = {}}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::sequence, .parts = {7}}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::signed_integer, .size = 3}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::signed_integer, .size = 1 << 20}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::structure, .parts = {0}}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::structure, .parts = {0, 0}, .names = {"a", "a"}}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::structure, .name = "\xff"}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::structure, .name = std::string(5000, 'x')}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::evolving, .size = 4'294'967'296}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::duration, .parts = {0}}}}));
  EXPECT_TRUE(refused({.types = {{.kind = Kind::variant}}}));
  EXPECT_TRUE(refused({.types = std::vector<Type>(100'000)}));
}

TEST(ValueTypes, TypesThatNestThemselvesWithoutEndAreBounded) {
  using schema::Description, schema::Kind, schema::Type;
  const auto check = [](std::vector<Type> types) {
    Result<ValueTypes> checked = ValueTypes::check(Description{.arguments = {0}, .types = std::move(types)});
    EXPECT_TRUE(checked);
    const Bytes none;
    for (const std::string_view json : {"[]", "{}", "1", "null", "[[]]"}) {
      static_cast<void>(value_from_json(*checked, 0, json));
    }
    EXPECT_LE(label(checked->description(), 0).size(), 1000U);
    EXPECT_FALSE(value_to_json(*checked, 0, none, none));
  };
  check({{.kind = Kind::structure, .name = "a", .parts = {0}, .names = {"x"}}});
  check({{.kind = Kind::tuple, .parts = {0}}});
  check({{.kind = Kind::optional, .parts = {0}}});
  check({{.kind = Kind::tuple, .parts = {0, 0}}});
  check({{.kind = Kind::array, .size = std::uint64_t{1} << 31, .parts = {1}}, {.kind = Kind::tuple}});
  // 2^60 tuples without a byte.
  std::vector<Type> wide;
  for (std::uint32_t i = 1; i <= 60; ++i) wide.push_back({.kind = Kind::tuple, .parts = {i, i}});
  wide.push_back({.kind = Kind::tuple});
  check(std::move(wide));
}

TEST(ValueTypes, NamesCannotCommandTheTerminal) {
  EXPECT_EQ(printable("a\x1b[31m\r\n\xc2\x9b\x7f\xff\xe2\x80\xae z\xe2\x82\xac"), "a?[31m?????? z\xe2\x82\xac");
  const schema::Description hostile{.arguments = {0},
                                    .types = {{.kind = schema::Kind::structure, .name = "\x1b]0;x\x07"}}};
  EXPECT_EQ(label(hostile, 0), "?]0;x?");
}

}  // namespace
}  // namespace hawser::protocol::http
