#include "protocol/http/response_parser.h"

#include <algorithm>

namespace hawser::protocol::http {

bool ResponseParser::parse_first_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return refuse(400, "the status line has no status");
  if (!parse_version(line.substr(0, space))) return false;
  const std::string_view rest = line.substr(space + 1);
  const auto digit = [&rest](std::size_t i) { return rest[i] >= '0' && rest[i] <= '9'; };
  const bool number = rest.size() >= 3 && rest[0] >= '1' && rest[0] <= '9' && digit(1) && digit(2);
  if (!number || (rest.size() > 3 && rest[3] != ' ')) return refuse(400, "the status is not a number from 100 to 999");
  head_.status = static_cast<unsigned>((rest[0] - '0') * 100 + (rest[1] - '0') * 10 + (rest[2] - '0'));
  head_.phrase = rest.size() > 4 ? rest.substr(4) : std::string_view();
  return std::ranges::all_of(head_.phrase, is_value_character) ||
         refuse(400, "the status line has a control character");
}

// RFC 9112, 6.3.
MessageParser::State ResponseParser::begin_body() {
  if (no_body_ || head_.status < 200 || head_.status == 204 || head_.status == 304) {
    head_.content_length = 0;
    head_.chunked = false;
    return State::body;
  }
  if (head_.chunked) return State::chunk_size;
  if (head_.has_content_length) return State::body;
  head_.keep_alive = false;
  return State::until_end;
}

}  // namespace hawser::protocol::http
