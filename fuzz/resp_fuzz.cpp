#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "protocol/resp/request_parser.h"
#include "protocol/resp/requests_ahead.h"

// Arbitrary bytes as requests of Redis clients. The pieces in which they arrive must make no difference.
// Input: u8 bytes that arrive at a time (0: all) | the bytes.
namespace hawser::protocol::resp {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

constexpr RequestLimits limits{
    .arguments_max = 100, .bulk_bytes_max = 500, .request_bytes_max = 1000, .line_bytes_max = 200};

// Describes the requests that the bytes contain, and whether an error is behind them.
std::string describe(std::string_view bytes, std::size_t piece) {
  RespParser parser(limits);
  std::string out;
  std::string held;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min(piece, bytes.size() - at);
    held += bytes.substr(at, size);
    at += size;
    while (!held.empty()) {
      const RespParser::Step step = parser.next(as_bytes(held));
      if (step.event == RespParser::Event::error) {
        expect(!parser.error_text().empty());
        return out + "error";
      }
      if (step.event == RespParser::Event::more) break;
      expect(step.consumed > 0 && step.consumed <= held.size());
      expect(parser.arguments().size() <= std::max<std::size_t>(limits.arguments_max, held.size()));
      for (const std::string_view argument : parser.arguments()) {
        expect(argument.size() <= limits.request_bytes_max + piece);
        out += argument;
        out += '|';
      }
      out += '\n';
      held.erase(0, step.consumed);
      expect(!parser.inside());
    }
    expect(held.size() <= limits.request_bytes_max + limits.line_bytes_max + piece);
  }
  return out;
}

// The parser finds the same requests as RequestsAhead.
void compare_ahead(std::string_view bytes) {
  RequestsAhead ahead;
  RespParser parser(limits);
  for (const ReadyRequest& request : ahead.find(as_bytes(bytes), limits)) {
    const RespParser::Step step = parser.next(as_bytes(bytes));
    expect(step.event == RespParser::Event::request && step.consumed == request.bytes);
    expect(std::ranges::equal(parser.arguments(), request.arguments()));
    bytes.remove_prefix(step.consumed);
  }
}

}  // namespace
}  // namespace hawser::protocol::resp

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t piece = data[0] == 0 ? bytes.size() : data[0];
  hawser::protocol::resp::compare_ahead(bytes);
  const std::string in_pieces = hawser::protocol::resp::describe(bytes, piece);
  const std::string at_once = hawser::protocol::resp::describe(bytes, bytes.size());
  // A line that is too long is refused when its bytes are there, which depends on the pieces.
  const bool long_line = bytes.size() > 200;
  if (in_pieces != at_once && !long_line) std::abort();
  return 0;
}
