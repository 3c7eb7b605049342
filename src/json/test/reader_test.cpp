#include "json/reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

#include "heap/idle_memory.h"
#include "json/json_cases_testing.h"

namespace hawser::json {
namespace {

// The events of a text, such as `[ n1 t"a" ]`; the problem of an invalid text.
std::string events(std::string_view text, Limits limits = {}) {
  JsonReader reader(text, limits);
  std::string all;
  for (;;) {
    const Token token = reader.next();
    switch (token.kind) {
      case TokenKind::null: all += "null "; break;
      case TokenKind::boolean: all += std::string(token.written) + " "; break;
      case TokenKind::number: all += "n" + std::string(token.written) + " "; break;
      case TokenKind::text:
      case TokenKind::name:
        all += token.kind == TokenKind::name ? "" : "t";
        decode(token, all);
        all += token.kind == TokenKind::name ? ":" : " ";
        break;
      case TokenKind::begin_list: all += "[ "; break;
      case TokenKind::end_list: all += "] "; break;
      case TokenKind::begin_object: all += "{ "; break;
      case TokenKind::end_object: all += "} "; break;
      case TokenKind::end: EXPECT_EQ(reader.next().kind, TokenKind::end); return all;
      case TokenKind::invalid: EXPECT_EQ(reader.next().kind, TokenKind::invalid); return reader.problem();
    }
  }
}

bool is_invalid(std::string_view text) {
  const Result<void> checked = check(text, {});
  return !checked && checked.error().text.starts_with("invalid JSON at byte ");
}

TEST(JsonReader, GivesTheEventsOfAText) {
  EXPECT_EQ(events(R"( {"a" : [1, -2.5e3 ,"x\u00e9"] ,"b":{} , "c":[ ],"":null,"d":true,"e":false} )"),
            "{ a:[ n1 n-2.5e3 tx\xc3\xa9 ] b:{ } c:[ ] :null d:true e:false } ");
  EXPECT_EQ(events("\t\r\n 1 \t\r\n"), "n1 ");
  EXPECT_EQ(events("null"), "null ");
  EXPECT_EQ(events(R"([{"a":1},{"a":1}])"), "[ { a:n1 } { a:n1 } ] ");
  EXPECT_EQ(events(R"({"a":{"a":{"b":1,"a":2}},"b":3})"), "{ a:{ a:{ b:n1 a:n2 } } b:n3 } ");
}

TEST(JsonReader, RefusesEverythingElse) {
  for (const std::string& text : testing::invalid_jsons()) EXPECT_TRUE(is_invalid(text)) << text;
}

TEST(JsonReader, RefusesEveryBeginningOfAText) {
  const std::string text = R"({"a\u00e9":[1,-2.5e3,"x\ud83d\ude00",{"b":true,"c":[]}],"d":null})";
  EXPECT_FALSE(is_invalid(text));
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_TRUE(is_invalid(text.substr(0, size))) << size;
}

TEST(JsonReader, SaysWhereAndWhy) {
  EXPECT_EQ(events("[1,]"), "invalid JSON at byte 3: a value is expected");
  EXPECT_EQ(events("[1 2]"), "invalid JSON at byte 3: a list needs a comma or ] here");
  EXPECT_EQ(events("{\"a\":1"), "invalid JSON at byte 6: the text ends too early");
  EXPECT_EQ(events("[\"abc"), "invalid JSON at byte 1: a text has no end");
  EXPECT_EQ(events("[\"a\xff\"]"), "invalid JSON at byte 3: a text is not UTF-8");
  EXPECT_EQ(events("[\"\\ud800\"]"), "invalid JSON at byte 2: a text has an invalid escape");
  EXPECT_EQ(events("[1e999]"), "invalid JSON at byte 1: the number is larger than every double");
  EXPECT_EQ(events(R"({"a":1,"a":2})"), "invalid JSON at byte 12: the object has two members of one name");
}

TEST(JsonReader, FindsOneNameTwiceAmongMany) {
  std::string all = "{";
  for (int i = 0; i < 5000; ++i) all += "\"name" + std::to_string(i * 7919 % 5000) + "\":{\"x\":0},";
  EXPECT_FALSE(is_invalid(all + "\"other\":1}"));
  EXPECT_TRUE(is_invalid(all + "\"name77\":1}"));
  EXPECT_TRUE(is_invalid(all + "\"n\\u0061me4999\":1}"));
}

// An attacker may send many names that are short and have escapes.
TEST(JsonReader, NamesWithEscapesTakeAsMuchMemoryAsOthers) {
  constexpr std::size_t names = 20'000;
  std::string text = "{";
  for (std::size_t i = 0; i < names; ++i) text += R"("\n":0,)";
  const std::size_t before = allocator_bytes().used;
  JsonReader reader(text, {});
  while (reader.next().kind != TokenKind::invalid) continue;
  EXPECT_EQ(reader.problem(), "invalid JSON at byte 140001: the text ends too early");
  EXPECT_LT(allocator_bytes().used, before + names * 40);
}

TEST(JsonReader, DepthIsLimited) {
  const auto lists = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(check(lists(64), {}));
  EXPECT_EQ(events(lists(65)), "invalid JSON at byte 64: nested more than 64 deep");
  EXPECT_TRUE(check(lists(100'000), {.depth_max = 100'000}));
  EXPECT_FALSE(check(std::string(1'000'000, '['), {}));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_TRUE(is_invalid(objects));
  EXPECT_TRUE(check("[[1],[2]]", {.depth_max = 2}));
  EXPECT_TRUE(check("1", {.depth_max = 0}));
  EXPECT_FALSE(check("[]", {.depth_max = 0}));
}

TEST(JsonReader, TheNumberOfValuesIsLimited) {
  EXPECT_TRUE(check("[1,2,3]", {.values_max = 4}));
  EXPECT_FALSE(check("[1,2,3]", {.values_max = 3}));
  EXPECT_TRUE(check(R"({"a":1})", {.values_max = 3}));
  EXPECT_FALSE(check(R"({"a":1})", {.values_max = 2}));
  EXPECT_FALSE(check("1", {.values_max = 0}));
}

TEST(JsonReader, TextsAreDecoded) {
  for (const auto& [written, text] : testing::valid_texts) {
    JsonReader reader(written, {});
    const Token token = reader.next();
    ASSERT_EQ(token.kind, TokenKind::text) << written << reader.problem();
    std::string decoded;
    decode(token, decoded);
    EXPECT_EQ(decoded, text) << written;
    EXPECT_EQ(reader.next().kind, TokenKind::end);
  }
}

TEST(JsonReader, NumbersAreTheNearestDouble) {
  for (const auto& [written, value] : testing::valid_numbers) {
    JsonReader reader(written, {});
    const Token token = reader.next();
    ASSERT_EQ(token.kind, TokenKind::number) << written << reader.problem();
    EXPECT_EQ(double_of(token), value) << written;
    EXPECT_EQ(std::signbit(double_of(token)), std::signbit(value)) << written;
  }
  const std::string zeros(400, '0');
  EXPECT_FALSE(is_invalid("1" + std::string(300, '0')));
  EXPECT_TRUE(is_invalid("1" + zeros));
  EXPECT_TRUE(is_invalid("-1" + zeros + ".5"));
  EXPECT_FALSE(is_invalid("1." + zeros + "1"));
  EXPECT_FALSE(is_invalid("0." + zeros + "1"));
  EXPECT_FALSE(is_invalid("0." + zeros + "1e401"));
  EXPECT_FALSE(is_invalid("1" + zeros + "e-400"));
  EXPECT_TRUE(is_invalid("1" + zeros + "e-4"));
}

TEST(JsonReader, WholeNumbersAreExactIn64Bits) {
  const auto number = [](std::string_view written) {
    return number_of({.kind = TokenKind::number, .written = written});
  };
  EXPECT_EQ(number("18446744073709551615"), Number(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(number("-9223372036854775808"), Number(std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(number("0"), Number(std::uint64_t{0}));
  EXPECT_EQ(number("18446744073709551616"), Number(18446744073709551616.0));
  EXPECT_EQ(number("-9223372036854775809"), Number(-9223372036854775808.0));
  EXPECT_EQ(number("1.0"), Number(1.0));
  EXPECT_EQ(number("1e2"), Number(100.0));
  ASSERT_TRUE(std::holds_alternative<double>(number("-0")));
  EXPECT_TRUE(std::signbit(std::get<double>(number("-0"))));
}

// A text is often a part of a longer one.
TEST(JsonReader, ReadsNothingBehindItsText) {
  EXPECT_EQ(events(std::string_view("-12.5e1").substr(0, 2)), "n-1 ");
  EXPECT_EQ(events(std::string_view("12.5e1").substr(0, 2)), "n12 ");
  EXPECT_EQ(events(std::string_view("12.5e1").substr(0, 4)), "n12.5 ");
  EXPECT_EQ(events(std::string_view("-1").substr(0, 1)), "invalid JSON at byte 1: a number needs a digit here");
  EXPECT_EQ(events(std::string_view("true").substr(0, 3)), "invalid JSON at byte 0: a value is expected");
  EXPECT_EQ(events(std::string_view(R"("a")").substr(0, 2)), "invalid JSON at byte 0: a text has no end");
}

// Skips the value that `text` begins with, and returns what follows.
std::string_view after_skip(std::string_view text) {
  JsonReader reader(text, {});
  skip(reader, reader.next());
  return text.substr(reader.offset());
}

TEST(JsonReader, SkipsOneValueWithAllThatIsInIt) {
  EXPECT_EQ(after_skip("1 2"), " 2");
  EXPECT_EQ(after_skip(R"("[" 2)"), " 2");
  EXPECT_EQ(after_skip("[] 2"), " 2");
  EXPECT_EQ(after_skip("{} 2"), " 2");
  EXPECT_EQ(after_skip(R"([1,[2],{"a":[]}] 2)"), " 2");
  EXPECT_EQ(after_skip(R"({"a":1,"b":{"c":[{}]}} 2)"), " 2");
}

TEST(JsonReader, SkipEndsWithATextThatIsInvalid) {
  EXPECT_EQ(after_skip("[1,"), "");
  EXPECT_EQ(after_skip("[[1,}]"), "}]");
  EXPECT_EQ(after_skip(""), "");
}

}  // namespace
}  // namespace hawser::json
