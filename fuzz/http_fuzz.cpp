#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "protocol/http/request_parser.h"
#include "protocol/http/response_parser.h"

// Arbitrary bytes as HTTP/1 requests and as responses. The pieces in which they arrive must make no difference, and a
// body must keep its limit. Input: u8 bytes that arrive at a time (0: all) | the bytes.
namespace hawser::protocol::http {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

constexpr HttpMessageLimits limits{.line_bytes_max = 200,
                                   .head_bytes_max = 500,
                                   .fields_max = 8,
                                   .body_bytes_max = 1000,
                                   .chunk_extension_bytes_max = 20};

std::string first_line(const RequestHead& head) { return std::string(head.method) + std::string(head.path); }
std::string first_line(const ResponseHead& head) { return std::to_string(head.status) + std::string(head.phrase); }

// Describes the messages that the bytes contain, and the error behind them.
template <class Parser>
std::string describe(std::string_view bytes, std::size_t piece) {
  Parser parser(limits);
  std::string out;
  std::string held;
  std::string body;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min(piece, bytes.size() - at);
    held += bytes.substr(at, size);
    at += size;
    for (bool more = false; !more;) {
      const MessageParser::Step step = parser.next(as_bytes(held));
      expect(step.consumed <= held.size());
      switch (step.event) {
        case MessageParser::Event::more: more = true; break;
        case MessageParser::Event::error:
          expect(parser.status() >= 400 && !parser.reason().empty());
          // Which of several violations is found first depends on the pieces.
          return out + "error";
        case MessageParser::Event::head:
          out += first_line(parser.head());
          for (const Field& field : parser.head().fields) {
            out += field.name;
            out += field.value;
          }
          expect(!parser.head().chunked || parser.head().content_length == 0);
          body.clear();
          break;
        case MessageParser::Event::body:
          body += as_text(step.data);
          expect(body.size() <= limits.body_bytes_max);
          break;
        case MessageParser::Event::end: out += body + "|"; break;
      }
      held.erase(0, step.consumed);
    }
    // Bytes that the parser does not consume stay within its limits.
    expect(held.size() <= limits.head_bytes_max + limits.line_bytes_max + piece);
  }
  return out;
}

}  // namespace
}  // namespace hawser::protocol::http

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = data[0] == 0 ? bytes.size() : data[0];
  using namespace hawser::protocol::http;
  if (describe<RequestParser>(bytes, piece) != describe<RequestParser>(bytes, bytes.size())) std::abort();
  if (describe<ResponseParser>(bytes, piece) != describe<ResponseParser>(bytes, bytes.size())) std::abort();
  return 0;
}
