#pragma once

#include <string>
#include <string_view>
#include <vector>

// Texts that are almost JSON. Every reader of the library refuses each of them as invalid JSON.
namespace hawser::json::testing {

using namespace std::string_view_literals;

// In place of a number.
inline constexpr std::string_view invalid_numbers[] = {"01",
                                                       "-01",
                                                       "00",
                                                       "+1",
                                                       "-",
                                                       "--1",
                                                       "- 1",
                                                       ".5",
                                                       "-.5",
                                                       "1.",
                                                       "1.e1",
                                                       "1e",
                                                       "1e+",
                                                       "1E-",
                                                       "1e1.5",
                                                       "1e1e1",
                                                       "0x10",
                                                       "0xg",
                                                       "1f",
                                                       "1_000",
                                                       "1,000",
                                                       "NaN",
                                                       "-NaN",
                                                       "nan",
                                                       "inf",
                                                       "Infinity",
                                                       "-Infinity",
                                                       "1e999",
                                                       "-1e999",
                                                       "1e99999999999999999999",
                                                       "1a",
                                                       "1/2",
                                                       "1\0"sv,
                                                       "\0"sv,
                                                       "--",
                                                       "0e",
                                                       "0.e1",
                                                       "\xef\xbc\x91",
                                                       "1.797693134862315908e308"};

// In place of a text.
inline constexpr std::string_view invalid_texts[] = {
    "\"",
    "\"a",
    "\"a\\\"",
    "a\"",
    "'a'",
    "`a`",
    "a",
    "\"\n\"",
    "\"\t\"",
    "\"\x1f\"",
    "\"a\0b\""sv,
    R"("\)",
    R"("\a")",
    R"("\x41")",
    R"("\0")",
    R"("\'")",
    R"("\
")",
    R"("\u")",
    R"("\u0")",
    R"("\u004")",
    R"("\u00g1")",
    R"("\u 041")",
    R"("\u-041")",
    R"("\u+041")",
    R"("\U0041")",
    R"("\ud800")",
    R"("\udbff")",
    R"("\ud800x")",
    R"("\ud800\u")",
    R"("\ud800\u0041")",
    R"("\ud800\ud800")",
    R"("\ud800\\udc00")",
    R"("\udc00")",
    R"("\udfff\ud800")",
    "\"\x80\"",                  // A continuation without a beginning.
    "\"\xc3\"",                  // A beginning without a continuation.
    "\"\xc3(\"",                 //
    "\"\xc0\xaf\"",              // Overlong in two,
    "\"\xe0\x80\xaf\"",          // three
    "\"\xf0\x80\x80\xaf\"",      // and four bytes.
    "\"\xed\xa0\x80\"",          // A surrogate.
    "\"\xed\xb0\x80\"",          //
    "\"\xf4\x90\x80\x80\"",      // Beyond U+10FFFF.
    "\"\xf8\x88\x80\x80\x80\"",  // Five bytes.
    "\"\xff\"",
    "\"\xfe\"",
    "\"caf\xe9\"",  // Latin-1.
};

// In place of a list of numbers.
inline constexpr std::string_view invalid_lists[] = {"[",
                                                     "[1",
                                                     "[1,",
                                                     "[,1]",
                                                     "[1,]",
                                                     "[1,,2]",
                                                     "[1 2]",
                                                     "[1;2]",
                                                     "[1:2]",
                                                     "[1}",
                                                     "[1]]",
                                                     "[1],",
                                                     "[1]x",
                                                     "[1] 2",
                                                     "]",
                                                     "[]]",
                                                     "[,]",
                                                     "[\v1]",
                                                     "[\f1]",
                                                     "[1\xa0]",
                                                     "(1)",
                                                     "[1]#",
                                                     "/**/[]",
                                                     "[//\n",
                                                     "[1/*]",
                                                     "\v[1]",
                                                     "[1]\0"sv,
                                                     "\xef\xbb\xbf[1]",
                                                     "\xff\xfe[\0]\0"sv,
                                                     "[-]",
                                                     "[1e]"};

// In place of an object of numbers.
inline constexpr std::string_view invalid_objects[] = {
    "{",
    "{\"a\"",
    "{\"a\":",
    "{\"a\":1",
    "{\"a\":1,",
    "{\"a\":1,}",
    "{,\"a\":1}",
    "{\"a\":1,,\"b\":2}",
    "{\"a\" 1}",
    "{\"a\",1}",
    "{\"a\"::1}",
    "{\"a\":1 \"b\":2}",
    "{\"a\":}",
    "{\"a\"}",
    "{a:1}",
    "{'a':1}",
    "{1:1}",
    "{null:1}",
    "{[]:1}",
    "{\"a\":1]",
    "{\"a\":1}}",
    "{\"a\":1}x",
    "{\"a\":1}/**/",
    "{\"a\":1}{\"b\":2}",
    "{:1}",
    "{\"\\x\":1}",
    "{\"\\ud800\":1}",
    "{\"\xff\":1}",
    "{\"a\":1,\"a\":1}",
    "{\"a\":1,\"b\":2,\"a\":3}",
    "{\"a\":1,\"\\u0061\":2}",
    "{\"\\u0061\":1,\"\\u0061\":2}",
    "{\"\":1,\"\":2}",
    "{\"\\/\":1,\"/\":2}",
    "{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}",
};

// In place of anything.
inline constexpr std::string_view invalid_values[] = {
    "",     " ",    "\n",         "tru",   "True",  "TRUE", "truee", "fals",   "nul",     "NULL",
    "nil",  "None", "undefined",  ",",     ":",     "}",    "*",     "<null>", "\\u0041", "\xe2\x81\xa0",
    "\x80", "&",    "true false", "true,", "true]",
};

struct ValidNumber {
  std::string_view written;
  double value = 0;
};
inline constexpr ValidNumber valid_numbers[] = {
    {"0", 0},
    {"-0", -0.0},
    {"-0.0", -0.0},
    {"0e1", 0},
    {"0e999", 0},
    {"0E+5", 0},
    {"-1", -1},
    {"123", 123},
    {"1.5", 1.5},
    {"-0.25", -0.25},
    {"1e3", 1000},
    {"1E3", 1000},
    {"1e+3", 1000},
    {"1e-2", 0.01},
    {"1e00002", 100},
    {"20e1", 200},
    {"9007199254740993", 9007199254740992.0},
    {"18446744073709551616", 18446744073709551616.0},
    {"-9223372036854775809", -9223372036854775808.0},
    {"1.7976931348623157e308", 1.7976931348623157e308},
    {"5e-324", 5e-324},
    {"1e-400", 0},
    {"-1e-99999999999999999999", -0.0},
};

struct ValidText {
  std::string_view written;
  std::string_view text;
};
inline constexpr ValidText valid_texts[] = {
    {R"("")", ""},
    {R"("a b")", "a b"},
    {R"("\"\\\/\b\f\n\r\t")", "\"\\/\b\f\n\r\t"},
    {R"("\u0041\u00e9\u20AC\ud83d\uDE00")", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {R"("\u0000x")", "\0x"sv},
    {R"("\uffff\ufdd0")", "\xef\xbf\xbf\xef\xb7\x90"},
    {R"("a\u0009b\\u0041")", "a\tb\\u0041"},
    {"\"\x7f\"", "\x7f"},
    {"\"\xc3\xa9\xe2\x80\xa8\xf4\x8f\xbf\xbf\"", "\xc3\xa9\xe2\x80\xa8\xf4\x8f\xbf\xbf"},
    {R"("[{/*not a comment*/'")", "[{/*not a comment*/'"},
};

inline std::vector<std::string> invalid_jsons() {
  std::vector<std::string> all;
  for (const std::string_view one : invalid_numbers)
    all.insert(all.end(), {std::string(one), "[" + std::string(one) + "]"});
  for (const std::string_view one : invalid_texts)
    all.insert(all.end(), {std::string(one), "[" + std::string(one) + "]"});
  all.insert(all.end(), std::begin(invalid_lists), std::end(invalid_lists));
  all.insert(all.end(), std::begin(invalid_objects), std::end(invalid_objects));
  all.insert(all.end(), std::begin(invalid_values), std::end(invalid_values));
  return all;
}

}  // namespace hawser::json::testing
