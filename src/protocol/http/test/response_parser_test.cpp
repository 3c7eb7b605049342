#include "protocol/http/response_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace hawser::protocol::http {
namespace {

struct ParsedResponse {
  std::string text;  // "STATUS phrase body|" for each response; "+" instead of "|" if it lasts until the end.
  std::string reason;
};

// Shows the text in pieces of `piece` bytes.
ParsedResponse parse_responses(std::string_view text, std::size_t piece, bool no_body = false) {
  ResponseParser parser({.body_bytes_max = 100});
  parser.expect_no_body(no_body);
  ParsedResponse out;
  std::string held;
  std::string body;
  while (!text.empty() || !held.empty()) {
    const MessageParser::Step step = parser.next(as_bytes(held));
    if (step.event == MessageParser::Event::error) {
      out.reason = parser.reason();
      return out;
    }
    if (step.event == MessageParser::Event::head) {
      out.text += std::to_string(parser.head().status) + " " + std::string(parser.head().phrase) + " ";
    }
    if (step.event == MessageParser::Event::body) out.text += as_text(step.data);
    if (step.event == MessageParser::Event::end) out.text += "|";
    held.erase(0, step.consumed);
    if (step.event != MessageParser::Event::more) continue;
    if (text.empty()) break;
    held += text.substr(0, piece);
    text.remove_prefix(std::min(piece, text.size()));
  }
  // The end of a message without further bytes.
  if (held.empty() && !parser.idle() && !parser.end_of_stream() && parser.next({}).event == MessageParser::Event::end) {
    out.text += "|";
  }
  if (parser.end_of_stream()) out.text += "+";
  return out;
}

TEST(ResponseParser, PiecesMakeNoDifference) {
  const std::string_view text =
      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
      "HTTP/1.1 100 Continue\r\n\r\n"
      "HTTP/1.1 204\r\n\r\n"
      "HTTP/1.1 404 Not here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n"
      "HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n"
      "HTTP/1.0 200 \r\n\r\nrest";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(parse_responses(text, piece).text, "200 OK abc|100 Continue |204  |404 Not here de|304 Same |200  rest+");
  }
}

TEST(ResponseParser, AnAnswerToHeadHasNoBody) {
  EXPECT_EQ(parse_responses("HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", 1000, true).text, "200 OK |");
  EXPECT_EQ(parse_responses("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 1000, true).text, "200 OK |");
}

TEST(ResponseParser, SpacesBehindTheSizeOfAChunkAreIgnored) {
  for (const std::string_view size : {"2 ", "2  \t", "2 ;a=b", "02\t;a "}) {
    const std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(size) +
                             "\r\nde\r\n0 \r\n\r\nHTTP/1.1 204 \r\n\r\n";
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
      EXPECT_EQ(parse_responses(text, piece).text, "200 OK de|204  |") << text;
    }
  }
  for (const std::string_view size : {" 2", "2 0", "2 0;a", "2 x", " ", "\t", "2\v", "2 \r"}) {
    const std::string text =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + std::string(size) + "\r\nde\r\n0\r\n\r\n";
    EXPECT_EQ(parse_responses(text, 1000).reason, "invalid size of a chunk") << text;
  }
}

TEST(ResponseParser, RefusesWhatIsNotAResponse) {
  for (const std::string_view text :
       {"HTTP/1.1\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "\n\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n", "HTTP/3.1 200 OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
        "HTTP/1.1 200 a\x01\r\n\r\n", "HTTP/1.1 200 OK\r\n A: b\r\n\r\n", "HTTP/1.1 200 OK\nA\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"}) {
    EXPECT_FALSE(parse_responses(text, 1000).reason.empty()) << text;
  }
}

}  // namespace
}  // namespace hawser::protocol::http
