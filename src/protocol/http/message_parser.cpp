#include "protocol/http/message_parser.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

namespace hawser::protocol::http {
namespace {

constexpr std::array<bool, 256> make_token_table() {
  std::array<bool, 256> table{};
  for (const char c :
       std::string_view("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}
constexpr std::array<bool, 256> token_table = make_token_table();

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Calls `use` for each element of a comma-separated list. Stops when `use` returns false, and returns that.
template <class Use>
bool each_element(std::string_view list, Use use) {
  for (;;) {
    const std::size_t comma = list.find(',');
    if (const std::string_view one = trim(list.substr(0, comma)); !one.empty() && !use(one)) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

// `what`: "the body is too long". `limit`: the name of the option.
std::string above_limit(std::string_view what, std::uint64_t actual, std::string_view unit, std::string_view limit,
                        std::uint64_t most) {
  std::string text(what);
  text += ": " + std::to_string(actual) + " ";
  text.append(unit).append(", and ").append(limit).append(" is ");
  return text + std::to_string(most) + ": send less, or raise the limit";
}

// True if a quoted string in `text` has no end.
bool leaves_quote_open(std::string_view text) noexcept {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    }
  }
  return quoted;
}

}  // namespace

bool is_token_character(char c) noexcept { return token_table[static_cast<unsigned char>(c)]; }

bool is_token(std::string_view text) noexcept { return !text.empty() && std::ranges::all_of(text, is_token_character); }

bool is_value_character(char c) noexcept {
  const auto code = static_cast<unsigned char>(c);
  return (code >= 0x20 && code != 0x7f) || c == '\t';
}

std::optional<std::string_view> MessageHead::field(std::string_view name) const noexcept {
  for (const Field& one : fields) {
    if (equal_without_case(one.name, name)) return one.value;
  }
  return std::nullopt;
}

MessageParser::Step MessageParser::fail(unsigned status, std::string reason) {
  state_ = State::failed;
  status_ = status;
  reason_ = std::move(reason);
  return {.event = Event::error};
}

MessageParser::Step MessageParser::refuse_line(unsigned status, std::string_view what, std::size_t bytes) {
  return fail(status, above_limit(what, bytes, "bytes or more", "line_bytes_max", limits_.line_bytes_max));
}

MessageParser::Step MessageParser::refuse_body(std::uint64_t bytes) {
  return fail(413,
              above_limit("the body is too long", bytes, "bytes or more", "body_bytes_max", limits_.body_bytes_max));
}

MessageParser::Step MessageParser::next(Bytes in) {
  const std::string_view text = as_text(in);
  switch (state_) {
    case State::head: return parse_head(text);
    case State::body: return left_ == 0 ? end() : take_body(in, State::body);
    case State::chunk_size: return parse_chunk_size(text);
    case State::chunk_data: return take_body(in, State::chunk_end);
    case State::chunk_end:
      if (text.empty()) return {};
      if (text[0] != '\r' || (text.size() > 1 && text[1] != '\n')) return fail(400, "a chunk does not end with CRLF");
      if (text.size() < 2) return {};
      state_ = State::chunk_size;
      return {.event = Event::body, .consumed = 2};
    case State::trailer: return parse_trailer(text);
    case State::until_end: return take_until_end(in);
    case State::failed: break;
  }
  return {.event = Event::error};
}

// ---- The head ----

// Searches the empty line that ends the head before anything is parsed, but refuses at once what can be refused: bare
// LF, lines and heads that are too long.
MessageParser::Step MessageParser::parse_head(std::string_view in) {
  std::size_t begin = 0;
  // One empty line before a message is ignored, as RFC 9112, 2.2 advises.
  if (in.starts_with("\r\n")) begin = 2;
  std::size_t at = std::max(scanned_, begin);
  line_begin_ = std::max(line_begin_, begin);
  std::size_t end = 0;
  std::size_t fields_end = 0;  // Begin of the empty line.
  while (at < in.size() && end == 0) {
    const auto* const found = static_cast<const char*>(std::memchr(in.data() + at, '\n', in.size() - at));
    const std::size_t stop = found == nullptr ? in.size() : static_cast<std::size_t>(found - in.data());
    if (stop - line_begin_ > limits_.line_bytes_max + 1) {
      const bool first = line_begin_ <= begin;
      return refuse_line(first ? 414 : 431, first ? first_line_.too_long : "a header field is too long",
                         stop - line_begin_ - 1);
    }
    at = stop;
    if (found == nullptr) break;
    const bool bare = stop == line_begin_ || in[stop - 1] != '\r';
    if (bare && faults_ == Faults::refused) return fail(400, "a line ends with LF instead of CRLF");
    ambiguous_ = ambiguous_ || bare;
    if (stop == line_begin_ + (bare ? 0 : 1)) {
      if (line_begin_ <= begin) return fail(400, std::string(first_line_.empty));
      fields_end = line_begin_;
      end = stop + 1;
    }
    line_begin_ = at = stop + 1;
  }
  if (const std::size_t bytes = (end == 0 ? in.size() : end) - begin; bytes > limits_.head_bytes_max)
    return fail(431, above_limit("the header is too long", bytes, "bytes", "header_bytes_max", limits_.head_bytes_max));
  if (end == 0) {
    scanned_ = in.size();
    return {};
  }
  scanned_ = line_begin_ = 0;
  return parse_lines(in.substr(begin, fields_end - begin), end);
}

// `rest`: the lines of the head with their ends, without the empty one. `end`: bytes of the whole head.
MessageParser::Step MessageParser::parse_lines(std::string_view rest, std::size_t end) {
  head_.fields.clear();
  const auto take = [&rest] {
    const std::size_t stop = rest.find('\n');
    std::string_view line = rest.substr(0, stop);
    if (line.ends_with('\r')) line.remove_suffix(1);
    rest.remove_prefix(stop + 1);
    return line;
  };
  if (!parse_first_line(take())) return {.event = Event::error};
  while (!rest.empty()) {
    if (head_.fields.size() >= limits_.fields_max) {
      const auto more = static_cast<std::size_t>(std::ranges::count(rest, '\n'));
      return fail(431, above_limit("too many header fields", head_.fields.size() + more, "fields", "header_fields_max",
                                   limits_.fields_max));
    }
    Field field;
    if (!parse_field(take(), field)) return {.event = Event::error};
    head_.fields.push_back(field);
  }
  if (!apply_fields()) return {.event = Event::error};
  if (std::exchange(ambiguous_, false)) head_.keep_alive = false;
  const State body = begin_body();
  if (state_ == State::failed) return {.event = Event::error};
  if (head_.content_length > limits_.body_bytes_max) return refuse_body(head_.content_length);
  left_ = head_.content_length;
  body_bytes_ = 0;
  extension_bytes_ = trailer_bytes_ = trailer_fields_ = 0;
  state_ = body;
  return {.event = Event::head, .consumed = end};
}

bool MessageParser::parse_field(std::string_view line, Field& field) {
  if (line.front() == ' ' || line.front() == '\t') return refuse(400, "a header field is folded");
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return refuse(400, "a header field has no colon");
  field.name = line.substr(0, colon);
  if (!is_token(field.name)) return refuse(400, "the name of a header field is not a token");
  field.value = trim(line.substr(colon + 1));
  if (!std::ranges::all_of(field.value, is_value_character))
    return refuse(400, "a header field has a control character");
  return true;
}

bool MessageParser::parse_version(std::string_view version) {
  const bool form = version.size() == 8 && version.starts_with("HTTP/") && version[5] >= '0' && version[5] <= '9' &&
                    version[6] == '.' && version[7] >= '0' && version[7] <= '9';
  if (!form) return refuse(400, "the version is not HTTP/1.1");
  if (version[5] != '1' || version[7] > '1') return refuse(505, "only HTTP/1.0 and HTTP/1.1 are supported");
  head_.minor = static_cast<unsigned>(version[7] - '0');
  return true;
}

bool MessageParser::apply_fields() {
  head_.content_length = 0;
  head_.has_content_length = head_.chunked = false;
  head_.keep_alive = head_.minor == 1;
  for (const Field& one : head_.fields) {
    switch (one.name.size()) {
      case 4:
      case 6:
        if (!apply_field(one)) return false;
        break;
      case 10:
        if (equal_without_case(one.name, "connection") && !apply_connection(one.value)) {
          return refuse(400, "invalid Connection");
        }
        break;
      case 14:
        if (!equal_without_case(one.name, "content-length")) break;
        if (!apply_lengths(one.value)) return false;
        break;
      case 17:
        if (!equal_without_case(one.name, "transfer-encoding")) break;
        if (head_.minor == 0) return refuse(400, "Transfer-Encoding in a message of HTTP/1.0");
        if (std::exchange(head_.chunked, true)) return refuse(400, "Transfer-Encoding is sent twice");
        if (!equal_without_case(one.value, "chunked"))
          return refuse(501, "only the transfer coding chunked is supported");
        break;
      default: break;
    }
  }
  if (head_.has_content_length && head_.chunked) {
    if (faults_ == Faults::refused) return refuse(400, "Content-Length beside Transfer-Encoding");
    head_.content_length = 0;
    head_.has_content_length = false;
    ambiguous_ = true;
  }
  return true;
}

// A list of equal lengths is one length.
bool MessageParser::apply_lengths(std::string_view values) {
  if (values.empty() || values.ends_with(',')) return refuse(400, "invalid Content-Length");
  return each_element(values, [this](std::string_view value) {
    const std::uint64_t before = head_.content_length;
    const bool again = std::exchange(head_.has_content_length, true);
    if (!apply_length(value)) return false;
    if (!again) return true;
    if (head_.content_length != before) return refuse(400, "Content-Length is sent twice with different values");
    ambiguous_ = true;
    return true;
  });
}

bool MessageParser::apply_length(std::string_view value) {
  std::uint64_t length = 0;
  const bool digits =
      !value.empty() && value.size() <= 18 && std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return refuse(400, "invalid Content-Length");
  for (const char c : value) length = length * 10 + static_cast<unsigned>(c - '0');
  head_.content_length = length;
  return true;
}

bool MessageParser::apply_connection(std::string_view value) {
  bool closes = false;
  const bool valid = each_element(value, [&](std::string_view option) {
    if (equal_without_case(option, "close")) closes = true;
    if (equal_without_case(option, "keep-alive") && head_.minor == 0) head_.keep_alive = true;
    return is_token(option);
  });
  if (closes) head_.keep_alive = false;
  return valid;
}

// ---- The body ----

MessageParser::Step MessageParser::end() {
  state_ = State::head;
  return {.event = Event::end};
}

MessageParser::Step MessageParser::take_body(Bytes in, State after) {
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(in.size(), left_));
  if (size == 0) return {};
  left_ -= size;
  if (left_ == 0) state_ = after;
  return {.event = Event::body, .consumed = size, .data = in.first(size)};
}

MessageParser::Step MessageParser::take_until_end(Bytes in) {
  if (in.empty()) return {};
  if (in.size() > limits_.body_bytes_max - body_bytes_) return refuse_body(body_bytes_ + in.size());
  body_bytes_ += in.size();
  return {.event = Event::body, .consumed = in.size(), .data = in};
}

std::optional<std::string_view> MessageParser::take_line(std::string_view in) {
  const std::size_t stop = in.find('\n');
  if (std::min(stop, in.size()) > limits_.line_bytes_max + 1) {
    refuse_line(400, "a line of a chunked body is too long", std::min(stop, in.size()) - 1);
    return std::nullopt;
  }
  if (stop == std::string_view::npos) return std::nullopt;
  if (stop == 0 || in[stop - 1] != '\r') {
    fail(400, "a line ends with LF instead of CRLF");
    return std::nullopt;
  }
  return in.substr(0, stop - 1);
}

MessageParser::Step MessageParser::parse_chunk_size(std::string_view in) {
  const std::optional<std::string_view> line = take_line(in);
  if (!line) return {.event = state_ == State::failed ? Event::error : Event::more};
  std::uint64_t size = 0;
  std::size_t digits = 0;
  for (; digits < line->size() && digits <= 16; ++digits) {
    const char c = ascii_lower((*line)[digits]);
    if (c >= '0' && c <= '9') {
      size = size * 16 + static_cast<unsigned>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      size = size * 16 + static_cast<unsigned>(c - 'a' + 10);
    } else {
      break;
    }
  }
  if (digits == 0 || digits > 15) return fail(400, "invalid size of a chunk");
  std::string_view extension = line->substr(digits);
  // Some servers fill the line of a size with spaces.
  if (faults_ == Faults::tolerated)
    extension.remove_prefix(std::min(extension.find_first_not_of(" \t"), extension.size()));
  if (!extension.empty() && extension.front() != ';') return fail(400, "invalid size of a chunk");
  if (!std::ranges::all_of(extension, is_value_character))
    return fail(400, "an extension of a chunk has a control character");
  if (leaves_quote_open(extension)) return fail(400, "an extension of a chunk has a quoted string without an end");
  extension_bytes_ += extension.size();
  if (extension_bytes_ > limits_.chunk_extension_bytes_max)
    return fail(400, above_limit("the extensions of the chunks are too long", extension_bytes_, "bytes",
                                 "chunk_extension_bytes_max", limits_.chunk_extension_bytes_max));
  if (size > limits_.body_bytes_max - body_bytes_) return refuse_body(body_bytes_ + size);
  body_bytes_ += size;
  left_ = size;
  state_ = size == 0 ? State::trailer : State::chunk_data;
  return {.event = Event::body, .consumed = line->size() + 2};
}

// Trailer fields are checked and ignored.
MessageParser::Step MessageParser::parse_trailer(std::string_view in) {
  const std::optional<std::string_view> line = take_line(in);
  if (!line) return {.event = state_ == State::failed ? Event::error : Event::more};
  const std::size_t size = line->size() + 2;
  if (line->empty()) {
    Step step = end();
    step.consumed = size;
    return step;
  }
  trailer_bytes_ += size;
  if (++trailer_fields_ > limits_.fields_max)
    return fail(431, above_limit("the trailer is too long", trailer_fields_, "fields", "header_fields_max",
                                 limits_.fields_max));
  if (trailer_bytes_ > limits_.head_bytes_max)
    return fail(431, above_limit("the trailer is too long", trailer_bytes_, "bytes", "header_bytes_max",
                                 limits_.head_bytes_max));
  Field field;
  if (!parse_field(*line, field)) return {.event = Event::error};
  return {.event = Event::body, .consumed = size};
}

}  // namespace hawser::protocol::http
