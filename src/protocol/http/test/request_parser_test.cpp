#include "protocol/http/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hawser::protocol::http {
namespace {

struct Parsed {
  std::vector<std::string> requests;  // "METHOD path?query [name=value;...] body".
  unsigned status = 0;
  std::string reason;
  std::size_t left = 0;  // Bytes that were not consumed.

  friend bool operator==(const Parsed&, const Parsed&) = default;
};

// Parses `text`, which arrives in pieces of the lengths `cuts`, and the rest at once.
Parsed parse(std::string_view text, const std::vector<std::size_t>& cuts = {}, const HttpMessageLimits& limits = {}) {
  RequestParser parser(limits);
  Parsed out;
  std::string held;  // Received and not consumed.
  std::string request;
  std::string body;
  std::size_t at = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::size_t size = i < cuts.size() ? cuts[i] : text.size() - at;
    held += text.substr(at, size);
    at += size;
    for (;;) {
      const RequestParser::Step step = parser.next(as_bytes(held));
      if (step.event == RequestParser::Event::more) break;
      if (step.event == RequestParser::Event::error) {
        out.status = parser.status();
        out.reason = parser.reason();
        return out;
      }
      if (step.event == RequestParser::Event::head) {
        const RequestHead& head = parser.head();
        request = std::string(head.method) + " " + std::string(head.path);
        if (!head.query.empty()) request += "?" + std::string(head.query);
        request += " [";
        for (const Field& field : head.fields)
          request += std::string(field.name) + "=" + std::string(field.value) + ";";
        request += head.keep_alive ? "]" : "] close";
        body.clear();
      }
      if (step.event == RequestParser::Event::body) body += as_text(step.data);
      if (step.event == RequestParser::Event::end) out.requests.push_back(request + " " + body);
      held.erase(0, step.consumed);
    }
  }
  out.left = held.size();
  return out;
}

unsigned status_of(std::string_view text, const HttpMessageLimits& limits = {}) {
  return parse(text, {}, limits).status;
}

std::string get(std::string_view fields) { return "GET / HTTP/1.1\r\nHost: a\r\n" + std::string(fields) + "\r\n"; }
std::string chunked(std::string_view body) {
  return "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(body);
}

TEST(RequestParser, ReadsRequestsOneAfterAnother) {
  const std::string text =
      "GET /a?b=c HTTP/1.1\r\nHost: x\r\nX-One:  two \t\r\n\r\n"
      "\r\nPOST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"
      "PUT http://x:80/q HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
      "OPTIONS * HTTP/1.0\r\n\r\n";
  const Parsed whole = parse(text);
  EXPECT_THAT(
      whole.requests,
      testing::ElementsAre("GET /a?b=c [Host=x;X-One=two;] ", "POST /p [host=x;content-length=5;] hello",
                           "PUT /q [Host=x:80;Transfer-Encoding=Chunked;] abc0123456789", "OPTIONS * [] close "));
  EXPECT_EQ(whole.left, 0U);
  // The pieces in which the bytes arrive make no difference.
  for (std::size_t cut = 0; cut <= text.size(); ++cut) EXPECT_EQ(parse(text, {cut}), whole) << cut;
  EXPECT_EQ(parse(text, std::vector<std::size_t>(text.size(), 1)), whole);
}

TEST(RequestParser, RefusesWhatCouldSmuggleARequest) {
  const std::vector<std::pair<std::string, unsigned>> cases = {
      {get("Content-Length: 1\r\nContent-Length: 2\r\n") + "xx", 400},
      {get("Content-Length: 1, 2\r\n") + "x", 400},
      {get("Content-Length: 1, +1\r\n") + "x", 400},
      {get("Content-Length: 1,\r\n") + "x", 400},
      {get("Content-Length: ,\r\n") + "x", 400},
      {get("Content-Length: +1\r\n") + "x", 400},
      {get("Content-Length: -1\r\n"), 400},
      {get("Content-Length: 0x1\r\n"), 400},
      {get("Content-Length: 1 1\r\n"), 400},
      {get("Content-Length:\r\n"), 400},
      {get("Content-Length: 99999999999999999999\r\n"), 400},
      {get("Content-Length: 18446744073709551617\r\n"), 400},
      {get("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
      {get("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400},
      {get("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {get("Transfer-Encoding: identity\r\n"), 501},
      {get("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {get("Transfer-Encoding: chunked, identity\r\n"), 501},
      {get("Transfer-Encoding: xchunked\r\n"), 501},
      {get("Transfer-Encoding:\x0b"
           "chunked\r\n"),
       400},
      {get("Transfer-Encoding : chunked\r\n"), 400},
      {get("Content-Length : 1\r\n"), 400},
      {get("X: a\r\n b\r\n"), 400},
      {get("X: a\r\n\tb\r\n"), 400},
      {get(" X: a\r\n"), 400},
      {get("X\r\n"), 400},
      {get(": a\r\n"), 400},
      {get("X y: a\r\n"), 400},
      {get("X: a\rb\r\n"), 400},
      {get(std::string("X: a\0b\r\n", 8)), 400},
      {get("X: a\x7f\r\n"), 400},
      {get("Host: b\r\n"), 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\n\n", 400},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
      {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /\r\nHost: a\r\n\r\n", 400},
      {"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET ftp://a/b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET http:///b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / http/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {get("Expect: 200-ok\r\n"), 417},
      {chunked("3\nabc\r\n0\r\n\r\n"), 400},
      {chunked("3\r\nabc\n0\r\n\r\n"), 400},
      {chunked("3\r\nabcd\r\n0\r\n\r\n"), 400},
      {chunked("3\r\nab\r\n0\r\n\r\n"), 400},
      {chunked("0x3\r\nabc\r\n0\r\n\r\n"), 400},
      {chunked(" 3\r\nabc\r\n0\r\n\r\n"), 400},
      {chunked("3 \r\nabc\r\n0\r\n\r\n"), 400},
      {chunked("-3\r\nabc\r\n0\r\n\r\n"), 400},
      {chunked("\r\nabc\r\n0\r\n\r\n"), 400},
      {chunked("g\r\nabc\r\n0\r\n\r\n"), 400},
      {chunked("3;a\rb\r\nabc\r\n0\r\n\r\n"), 400},
      {chunked("fffffffffffffffff\r\n"), 400},
      {chunked("10000000000000003\r\nabc\r\n"), 400},
      {chunked("0\r\nX : a\r\n\r\n"), 400},
      {chunked("0\r\n X: a\r\n\r\n"), 400},
      {chunked("0\r\n\n"), 400},
  };
  for (const auto& [text, status] : cases) {
    const Parsed whole = parse(text);
    EXPECT_EQ(whole.status, status) << text;
    EXPECT_TRUE(whole.requests.empty()) << text;
    EXPECT_EQ(parse(text, std::vector<std::size_t>(text.size(), 1)), whole) << text;
  }
}

// Wrong bytes at random places give the same events, in whatever pieces they arrive.
TEST(RequestParser, ChangedRequestsReadTheSameInAnyPieces) {
  const std::string valid = get("A: b\r\nConnection: close\r\n") +
                            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" +
                            chunked("3;x\r\nabc\r\n0\r\nT: u\r\n\r\n");
  constexpr std::string_view odd(
      "\r\n :;,\t\0\xff"
      "019afGx",
      16);
  std::uint32_t random = 1;
  const auto next = [&random](std::size_t below) {
    random = random * 1664525 + 1013904223;
    return static_cast<std::size_t>(random >> 8) % below;
  };
  for (int round = 0; round < 3000; ++round) {
    std::string text = valid;
    for (std::size_t changes = 1 + next(3); changes > 0; --changes) {
      const std::size_t at = next(text.size());
      const std::size_t kind = next(3);
      if (kind == 0) text[at] = odd[next(odd.size())];
      if (kind == 1) text.erase(at, 1 + next(4));
      if (kind == 2) text.insert(at, 1, odd[next(odd.size())]);
    }
    const Parsed whole = parse(text);
    const Parsed bytes = parse(text, std::vector<std::size_t>(text.size(), 1));
    EXPECT_EQ(whole.requests, bytes.requests) << text;
    EXPECT_EQ(whole.status, bytes.status) << text;
  }
}

constexpr HttpMessageLimits small_limits{
    .line_bytes_max = 40, .head_bytes_max = 100, .fields_max = 3, .body_bytes_max = 10, .chunk_extension_bytes_max = 4};

TEST(RequestParser, HoldsItsLimits) {
  const HttpMessageLimits limits = small_limits;
  const std::string line(40, 'x');
  EXPECT_EQ(status_of("GET /" + std::string(26, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n", limits), 0U);
  EXPECT_EQ(status_of("GET /" + std::string(27, 'x') + " HTTP/1.1\r\nHost: a\r\n\r\n", limits), 414U);
  EXPECT_EQ(status_of("GET /" + line, limits), 414U);
  EXPECT_EQ(status_of(get("X: " + std::string(37, 'x') + "\r\n"), limits), 0U);
  EXPECT_EQ(status_of(get("X: " + std::string(38, 'x') + "\r\n"), limits), 431U);
  EXPECT_EQ(status_of(get("A: " + line.substr(3) + "\r\nB: " + line.substr(3) + "\r\n"), limits), 431U);
  EXPECT_EQ(status_of(get("A: b\r\nC: d\r\n"), limits), 0U);
  EXPECT_EQ(status_of(get("A: b\r\nC: d\r\nE: f\r\n"), limits), 431U);
  EXPECT_EQ(status_of(get("Content-Length: 10\r\n") + "0123456789", limits), 0U);
  EXPECT_EQ(status_of(get("Content-Length: 11\r\n"), limits), 413U);
  EXPECT_EQ(
      status_of("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n4\r\n0123\r\n", limits),
      0U);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n012345\r\n5\r\n", limits),
            413U);
  EXPECT_EQ(status_of(chunked("1;ab\r\nx\r\n0\r\n\r\n"), limits), 0U);
  EXPECT_EQ(status_of(chunked("1;ab\r\nx\r\n1;b\r\n"), limits), 400U);
  EXPECT_EQ(status_of(chunked(line + "xx"), limits), 400U);
  EXPECT_EQ(status_of(chunked("0\r\nA: b\r\nC: d\r\nE: f\r\nG: h\r\n"), limits), 431U);
}

// The last byte of a line may be the CR of its end: it does not count.
TEST(RequestParser, ErrorsNameTheLimitAndTheValue) {
  const HttpMessageLimits limits = small_limits;
  const auto reason_of = [&](const std::string& text) { return parse(text, {}, limits).reason; };
  const std::string lengths = " bytes or more, and line_bytes_max is 40: send less, or raise the limit";
  EXPECT_EQ(reason_of("GET /" + std::string(27, 'x') + " HTTP/1.1\r\n"), "the request line is too long: 41" + lengths);
  EXPECT_EQ(reason_of(get("X: " + std::string(47, 'x') + "\r\n")), "a header field is too long: 50" + lengths);
  EXPECT_EQ(reason_of(chunked(std::string(60, 'x') + "\r\n")), "a line of a chunked body is too long: 60" + lengths);
  const std::string line = ": " + std::string(37, 'x') + "\r\n";
  const std::string head = get("A" + line + "B" + line);
  EXPECT_EQ(reason_of(head), "the header is too long: " + std::to_string(head.size()) +
                                 " bytes, and header_bytes_max is 100: send less, or raise the limit");
  EXPECT_EQ(reason_of(get("A: b\r\nC: d\r\nE: f\r\nG: h\r\n")),
            "too many header fields: 5 fields, and header_fields_max is 3: send less, or raise the limit");
  const std::string bodies = " bytes or more, and body_bytes_max is 10: send less, or raise the limit";
  EXPECT_EQ(reason_of(get("Content-Length: 11\r\n")), "the body is too long: 11" + bodies);
  EXPECT_EQ(reason_of(chunked("6\r\n012345\r\n1f\r\n")), "the body is too long: 37" + bodies);
  EXPECT_EQ(reason_of(chunked("1;ab\r\nx\r\n1;bcd\r\n")),
            "the extensions of the chunks are too long: 7 bytes, and chunk_extension_bytes_max is 4: send less, or "
            "raise the limit");
  EXPECT_EQ(reason_of(chunked("0\r\nA: b\r\nC: d\r\nE: f\r\nG: h\r\n")),
            "the trailer is too long: 4 fields, and header_fields_max is 3: send less, or raise the limit");
  const std::string trailer = ": " + std::string(36, 'x') + "\r\n";
  EXPECT_EQ(reason_of(chunked("0\r\nA" + trailer + "B" + trailer + "C" + trailer)),
            "the trailer is too long: 123 bytes, and header_bytes_max is 100: send less, or raise the limit");
}

// Another parser could find the end of such a string in the lines behind it.
TEST(RequestParser, QuotedStringsOfExtensionsHaveAnEnd) {
  for (const char* const extension : {";a=\"", ";a=\"b", ";a=\"b\\\"", ";a=\"b\";c=\"", ";a=\"\\"}) {
    const std::string text = chunked("1" + std::string(extension) + "\r\nx\r\n0\r\n\r\n");
    EXPECT_EQ(status_of(text), 400U) << extension;
    EXPECT_EQ(parse(text).reason, "an extension of a chunk has a quoted string without an end");
  }
  for (const char* const extension : {";a", ";a=b", ";a=\"\"", ";a=\"b;\"", ";a=\"b\\\"\"", ";a=\"\\\\\";c=\"d\""})
    EXPECT_EQ(status_of(chunked("1" + std::string(extension) + "\r\nx\r\n0\r\n\r\n")), 0U) << extension;
}

TEST(RequestParser, ConnectionAndExpectation) {
  const auto head_of = [](std::string_view text) {
    RequestParser parser(HttpMessageLimits{});
    EXPECT_EQ(parser.next(as_bytes(text)).event, RequestParser::Event::head) << text;
    return parser.head();
  };
  EXPECT_TRUE(head_of(get("")).keep_alive);
  EXPECT_FALSE(head_of(get("Connection: Close\r\n")).keep_alive);
  EXPECT_FALSE(head_of(get("Connection: x, close\r\n")).keep_alive);
  EXPECT_FALSE(head_of("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(head_of("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
  EXPECT_FALSE(head_of("GET / HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\n").keep_alive);
  EXPECT_EQ(status_of(get("Connection: a b\r\n")), 400U);
  EXPECT_FALSE(head_of(get("Expect: 100-continue\r\n")).expects_continue);
  const std::string text = get("Expect: 100-Continue\r\nContent-Length: 1\r\n");
  EXPECT_TRUE(head_of(text).expects_continue);
}

TEST(RequestParser, OneLengthThatIsSentTwiceEndsTheConnection) {
  for (const char* const fields : {"Content-Length: 1\r\nContent-Length: 1\r\n", "Content-Length: 1, 1\r\n",
                                   "Content-Length: 1\r\nContent-Length: 01\r\n"}) {
    const Parsed parsed = parse(get(fields) + "x");
    ASSERT_EQ(parsed.requests.size(), 1U) << fields;
    EXPECT_THAT(parsed.requests[0], testing::HasSubstr("x")) << fields;
    EXPECT_THAT(parsed.requests[0], testing::HasSubstr("close")) << fields;
  }
  EXPECT_THAT(parse(get("Content-Length: 1\r\n") + "x").requests[0], testing::Not(testing::HasSubstr("close")));
}

TEST(RequestParser, TheAbsoluteFormReplacesHost) {
  EXPECT_THAT(parse("GET http://b:80/c HTTP/1.1\r\nHost: a\r\n\r\n").requests,
              testing::ElementsAre("GET /c [Host=b:80;] "));
  EXPECT_THAT(parse("GET http://b?c HTTP/1.0\r\n\r\n").requests, testing::ElementsAre("GET /?c [host=b;] close "));
  // The next request has none.
  EXPECT_THAT(parse("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").requests,
              testing::ElementsAre("GET / [Host=b;] ", "GET / [Host=a;] "));
  for (const std::string host : {"user@b", "a,b", "a#b", "a\\b", "a\"b", "a{b}", "a<b", "a|b", "a^b", "a`b"}) {
    EXPECT_EQ(status_of("GET http://" + host + "/ HTTP/1.1\r\nHost: b\r\n\r\n"), 400U) << host;
  }
}

TEST(RequestParser, TargetsMayHaveTextInUtf8) {
  EXPECT_THAT(parse("GET /\u00fc?q=\u65e5 HTTP/1.1\r\nHost: a\r\n\r\n").requests,
              testing::ElementsAre("GET /\u00fc?q=\u65e5 [Host=a;] "));
  for (const char* const wrong : {"/\xff", "/\xc3", "/a\xc0\x80", "/\xed\xa0\x80", "/a\x7f", "/a\tb"}) {
    EXPECT_EQ(status_of("GET " + std::string(wrong) + " HTTP/1.1\r\nHost: a\r\n\r\n"), 400U) << wrong;
  }
}

}  // namespace
}  // namespace hawser::protocol::http
