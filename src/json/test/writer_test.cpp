#include "json/writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "json/reader.h"

namespace hawser::json {
namespace {

using namespace std::string_view_literals;

std::string written(std::string_view text, Escapes escapes = Escapes::text) {
  std::string out;
  append_text(out, text, escapes);
  return out;
}

template <class T>
std::string number(T value) {
  std::string out;
  append_number(out, value);
  return out;
}

std::string read_back(std::string_view json) {
  JsonReader reader(json, {});
  const Token token = reader.next();
  std::string text;
  if (token.kind == TokenKind::text) decode(token, text);
  return reader.next().kind == TokenKind::end ? text : "invalid: " + std::string(json);
}

TEST(JsonWriter, EscapesWhatMustNotStand) {
  EXPECT_EQ(written("a \"b\" \\ /"), R"("a \"b\" \\ /")");
  EXPECT_EQ(written("\n\t\r\b\0\x1f\x7f"sv), R"("\n\t\u000d\u0008\u0000\u001f\u007f")");
  EXPECT_EQ(written("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  EXPECT_EQ(written("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0"), "\"\\u0080\\u009b\\u009f\xc2\xa0\"");
  EXPECT_EQ(written("\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa"), "\"\xe2\x80\xa7\\u2028\\u2029\xe2\x80\xaa\"");
  EXPECT_EQ(written("<&>"), "\"<&>\"");
  EXPECT_EQ(written("<&>\"\n", Escapes::html), R"("\u003c\u0026\u003e\"\n")");
  EXPECT_EQ(written("a\xff\xc3z\xed\xa0\x80"), R"("a\ufffd\ufffdz\ufffd\ufffd\ufffd")");
}

TEST(JsonWriter, TheReaderReadsEveryCharacterBack) {
  std::string all;
  for (unsigned code = 0; code <= 0x10FFFF; code += code < 0x3000 ? 1 : 61) {
    if (code >= 0xd800 && code < 0xe000) continue;
    if (code < 0x80) {
      all += static_cast<char>(code);
      continue;
    }
    const unsigned last = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr unsigned marks[] = {0, 0xC0, 0xE0, 0xF0};
    all += static_cast<char>(marks[last] | code >> 6 * last);
    for (unsigned i = last; i-- > 0;) all += static_cast<char>(0x80 | (code >> 6 * i & 0x3F));
  }
  ASSERT_TRUE(is_utf8(all));
  EXPECT_EQ(read_back(written(all)), all);
  EXPECT_EQ(read_back(written(all, Escapes::html)), all);
}

TEST(JsonWriter, AnyBytesAreValidJson) {
  std::string bytes;
  for (unsigned i = 0; i < 60'000; ++i) bytes += static_cast<char>(i * 2654435761U >> 13);
  EXPECT_TRUE(check(written(bytes), {}));
  EXPECT_TRUE(check(written(bytes, Escapes::html), {}));
}

TEST(JsonWriter, Numbers) {
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(0.1F), "0.1");
  EXPECT_EQ(number(-0.0), "-0");
  EXPECT_EQ(number(1e300), "1e+300");
  EXPECT_EQ(number(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(number(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(number(std::numeric_limits<float>::quiet_NaN()), "null");
}

}  // namespace
}  // namespace hawser::json
