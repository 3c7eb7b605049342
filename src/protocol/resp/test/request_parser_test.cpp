#include "protocol/resp/request_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/resp/number.h"
#include "protocol/resp/test/request_text.h"

namespace hawser::protocol::resp {
namespace {

using Words = std::vector<std::string>;
using Event = RespParser::Event;

constexpr RequestLimits small_limits{
    .arguments_max = 4, .bulk_bytes_max = 20, .request_bytes_max = 60, .line_bytes_max = 30};

// The requests in some bytes, and the state behind them: "more", the text of an error, or nothing.
struct Found {
  std::vector<Words> requests;
  std::string rest;
  bool operator==(const Found&) const = default;
};

// The bytes are shown as they arrive, `piece` at a time. They lie elsewhere each time.
Found parse(std::string_view text, const RequestLimits& limits = {}, std::size_t piece = SIZE_MAX) {
  RespParser parser(limits);
  Found found;
  std::string held;
  while (!text.empty()) {
    held += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
    while (!held.empty()) {
      const std::string shown = held;
      const RespParser::Step step = parser.next(as_bytes(shown));
      EXPECT_EQ(step.consumed != 0, step.event == Event::request);
      if (step.event == Event::error) return found.rest = parser.error_text(), found;
      EXPECT_EQ(parser.inside(), step.event == Event::more);
      if (step.event == Event::more) break;
      found.requests.emplace_back(parser.arguments().begin(), parser.arguments().end());
      held.erase(0, step.consumed);
    }
  }
  if (!held.empty()) found.rest = "more";
  return found;
}

std::string error_of(std::string_view text, const RequestLimits& limits = small_limits) {
  const Found found = parse(text, limits);
  EXPECT_TRUE(found.requests.empty()) << text;
  return found.rest;
}

// ---- Numbers ----

TEST(RespNumber, IsDecimalWithoutAnythingElse) {
  const auto number = [](std::string_view text) {
    std::int64_t value = 0;
    return parse_number(text, value) ? std::to_string(value) : "none";
  };
  for (const std::string_view good :
       {"0", "1", "9", "10", "19", "90", "-1", "-9", "-10", "9223372036854775807", "-9223372036854775808"}) {
    EXPECT_EQ(number(good), good);
  }
  for (const std::string_view bad : {"", "-", "-0", "00", "01", "-01", "+1", " 1", "1 ", "1x", "x", "/", ":",
                                     "1:", "--1", "9223372036854775808", "-9223372036854775809"}) {
    EXPECT_EQ(number(bad), "none") << bad;
  }
}

// ---- Arrays ----

TEST(RespRequest, IsTheSameInPiecesOfAnySize) {
  const std::string text = request({"SET", "key", ""}) + request({"GET", std::string("\0\r\n$", 4)}) + "*0\r\n" +
                           "PING 'a b'\r\n" + "*-1\r\n" + request({"A", "B", "C", "DDDDDDDDDDDD"});
  const Found whole{{{"SET", "key", ""},
                     {"GET", std::string("\0\r\n$", 4)},
                     {},
                     {"PING", "a b"},
                     {},
                     {"A", "B", "C", "DDDDDDDDDDDD"}},
                    ""};
  for (std::size_t piece = 1; piece <= text.size(); ++piece) ASSERT_EQ(parse(text, {}, piece), whole) << piece;
}

TEST(RespRequest, IsIncompleteUntilItsLastByte) {
  const std::string text = request({"SET", "key", "value"});
  for (std::size_t size = 1; size < text.size(); ++size) {
    ASSERT_EQ(parse(std::string_view(text).substr(0, size)), (Found{{}, "more"})) << size;
  }
  RespParser parser;
  EXPECT_EQ(parser.next({}).event, Event::more);
  EXPECT_FALSE(parser.inside()) << "nothing has begun";
}

TEST(RespRequest, KeepsItsLimits) {
  EXPECT_EQ(parse(request({"1", "2", "3", "4"}), small_limits).requests.size(), 1U);
  EXPECT_EQ(error_of(request({"1", "2", "3", "4", "5"})), "invalid multibulk length");
  EXPECT_EQ(parse(request({std::string(20, 'x')}), small_limits).requests.size(), 1U);
  EXPECT_EQ(error_of(request({std::string(21, 'x')})), "invalid bulk length");
  // 4 bytes, and 5 + 20 + 2 bytes, and 5 + 20 + 2 bytes: the last argument ends 2 bytes before the request.
  const std::string long_request = request({std::string(20, 'x'), std::string(20, 'y')});
  ASSERT_EQ(long_request.size(), 58U);
  RequestLimits exact = small_limits;
  exact.request_bytes_max = 56;
  EXPECT_EQ(parse(long_request, exact).requests.size(), 1U);
  exact.request_bytes_max = 55;
  EXPECT_EQ(error_of(long_request, exact), "invalid bulk length");
}

TEST(RespRequest, BoundsLinesWithoutAnEnd) {
  const std::string line(30, '1');
  EXPECT_EQ(error_of("*" + line.substr(1)), "more");
  EXPECT_EQ(error_of("*" + line), "too big mbulk count string");
  EXPECT_EQ(error_of("*1\r\n$" + line.substr(1)), "more");
  EXPECT_EQ(error_of("*1\r\n$" + line), "too big bulk count string");
  EXPECT_EQ(error_of(line), "more");
  EXPECT_EQ(error_of(line + "1"), "too big inline request");
  EXPECT_EQ(error_of("*" + line.substr(1) + "\r"), "more") << "the number is complete without the last byte";
}

TEST(RespRequest, ErrorsNameWhatIsWrong) {
  EXPECT_EQ(error_of("*x\r\n"), "invalid multibulk length");
  EXPECT_EQ(error_of("*\r\n"), "invalid multibulk length");
  EXPECT_EQ(error_of("*1\r\nGET\r\n"), "expected '$', got 'G'");
  EXPECT_EQ(error_of("*1\r\n$x\r\n"), "invalid bulk length");
  EXPECT_EQ(error_of("*1\r\n$-1\r\n"), "invalid bulk length");
  EXPECT_EQ(error_of("*1\r\n$1\r\nab\n"), "an argument does not end with CRLF");
  EXPECT_EQ(error_of("*1\r\n$1\r\na\rb"), "an argument does not end with CRLF");
}

TEST(RespRequest, AnnouncesMayBeValidAfterAuthentication) {
  const RequestLimits limits = RequestLimits{.bulk_bytes_max = 1000'000}.before_authentication();
  EXPECT_EQ(limits.arguments_max, 10U);
  EXPECT_EQ(limits.bulk_bytes_max, 16U * 1024);
  EXPECT_EQ(error_of("*10\r\n", limits), "more");
  EXPECT_EQ(error_of("*11\r\n", limits), "unauthenticated multibulk length");
  EXPECT_EQ(error_of("*2147483647\r\n", limits), "unauthenticated multibulk length");
  EXPECT_EQ(error_of("*2147483648\r\n", limits), "invalid multibulk length");
  EXPECT_EQ(error_of("*1\r\n$16384\r\n", limits), "more");
  EXPECT_EQ(error_of("*1\r\n$16385\r\n", limits), "unauthenticated bulk length");
  EXPECT_EQ(error_of("*1\r\n$1000000\r\n", limits), "unauthenticated bulk length");
  EXPECT_EQ(error_of("*1\r\n$1000001\r\n", limits), "invalid bulk length");
  EXPECT_EQ(RequestLimits{.arguments_max = 3}.before_authentication().arguments_max, 3U);
}

// The limits are those of the next request: one that has begun may be complete.
TEST(RespRequest, LimitsChangeBetweenRequests) {
  RespParser parser(small_limits);
  const std::string text = request({std::string(21, 'x')});
  parser.set_limits({});
  EXPECT_EQ(parser.limits().bulk_bytes_max, RequestLimits().bulk_bytes_max);
  EXPECT_EQ(parser.next(as_bytes(text)).event, Event::request);
}

// ---- Inline requests ----

TEST(RespInline, SplitsWords) {
  const auto words = [](std::string_view line) {
    const Found found = parse(std::string(line) + "\r\n");
    return found.requests.size() == 1 ? found.requests.front() : Words{found.rest};
  };
  EXPECT_EQ(words(""), Words());
  EXPECT_EQ(words("PING"), Words{"PING"});
  EXPECT_EQ(words(" \t\v\f SET  a\tb "), (Words{"SET", "a", "b"}));
  EXPECT_EQ(words(R"(SET "a b" 'c d')"), (Words{"SET", "a b", "c d"}));
  EXPECT_EQ(words(R"("" '')"), (Words{"", ""}));
  EXPECT_EQ(words(R"(a"b" c'd')"), (Words{"ab", "cd"})) << "quotes may begin within a word";
  EXPECT_EQ(words(R"("\n\r\t\b\a\"\\\q")"), Words{"\n\r\t\b\a\"\\q"});
  EXPECT_EQ(words(R"("\x41\x4a\x4Az")"), Words{"AJJz"});
  EXPECT_EQ(words(R"("\x4" "\xg1" "\x1g")"), (Words{"x4", "xg1", "x1g"})) << "two digits or none";
  EXPECT_EQ(words(R"('a\'b' '\n')"), (Words{"a'b", "\\n"}));
  EXPECT_EQ(words("\xff\x01"), Words{"\xff\x01"});
}

TEST(RespInline, QuotesMustBeBalanced) {
  for (const std::string_view bad : {R"("a)", R"('a)", R"("a"b)", R"('a'b)", R"("a""b")", R"("a\)", R"('a\)", R"(")",
                                     R"(')", R"("a\")", R"('a\')"}) {
    EXPECT_EQ(error_of(std::string(bad) + "\n", {}), "unbalanced quotes in request") << bad;
  }
}

TEST(RespInline, EndsWithItsLine) {
  EXPECT_EQ(parse("GET a\nGET b\r\n\r\n\n").requests, (std::vector<Words>{{"GET", "a"}, {"GET", "b"}, {}, {}}));
  EXPECT_EQ(parse(std::string("GET a\0 b\r\n", 10)).requests, (std::vector<Words>{{"GET", "a"}}));
  EXPECT_EQ(parse("GET a\r\r\n").requests, (std::vector<Words>{{"GET", "a"}})) << "CR is white space";
  EXPECT_EQ(parse("GET a\r").rest, "more");
}

// ---- Memory ----

TEST(RespMemory, OfManyArgumentsIsCountedAndReleased) {
  RespParser parser;
  const std::string many = request(Words(5'000, "a"));
  const std::string small = request({"PING"});
  std::string line;
  for (int i = 0; i < 5'000; ++i) line += "a ";
  line += "\r\n";
  for (const std::string& text : {many, line}) {
    ASSERT_EQ(parser.next(as_bytes(text)).event, Event::request);
    ASSERT_EQ(parser.arguments().size(), 5'000U);
    EXPECT_GE(parser.held_bytes(), 5'000U * sizeof(std::string_view));
    for (const std::string_view after : {std::string_view(small), std::string_view("PING\r\n")}) {
      ASSERT_EQ(parser.next(as_bytes(text)).event, Event::request);
      ASSERT_EQ(parser.next(as_bytes(after)).event, Event::request);
      EXPECT_LE(parser.held_bytes(), 8192U);
    }
  }
  ASSERT_EQ(parser.next(as_bytes(line)).event, Event::request);
  EXPECT_GE(parser.held_bytes(), 5'000U * (sizeof(std::string) + sizeof(std::string_view)));
}

// Positions of arguments that have arrived are held while the rest is awaited.
TEST(RespMemory, AnnouncedArgumentsCostNothing) {
  RespParser parser;
  ASSERT_EQ(parser.next(as_bytes(std::string_view("*1000000\r\n$60000000\r\nabc"))).event, Event::more);
  EXPECT_EQ(parser.held_bytes(), 0U);
}

}  // namespace
}  // namespace hawser::protocol::resp
