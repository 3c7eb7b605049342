#include "json/reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "base/parse_double.h"
#include "base/utf8.h"

namespace hawser::json {
namespace {

// First sizes of memory that most texts do not exceed.
constexpr std::size_t levels_expected = 8;
constexpr std::size_t names_expected = 16;

// The bytes of a text that need no check: ASCII without control characters, quotation mark and backslash.
constexpr auto is_plain = [] {
  std::array<bool, 256> plain{};
  for (unsigned c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

// Replaces the names that have escapes by views of their meanings, which it writes to `decoded`.
void decode_names(std::span<std::string_view> names, std::string& decoded) {
  const auto escaped = [](std::string_view name) { return name.contains('\\'); };
  std::size_t bytes = 0;
  for (const std::string_view name : names) bytes += escaped(name) ? name.size() : 0;
  decoded.reserve(bytes);  // No meaning is longer than what is written, so the views stay valid.
  for (std::string_view& name : names) {
    if (!escaped(name)) continue;
    const std::size_t begin = decoded.size();
    decode({.kind = TokenKind::name, .written = name, .escaped = true}, decoded);
    name = std::string_view(decoded).substr(begin);
  }
}

// True if two names are equal. They are given as they are written, and changed.
bool has_twins(std::span<std::string_view> names) {
  std::string decoded;
  decode_names(names, decoded);
  constexpr std::size_t few = 12;
  if (names.size() <= few) {
    for (auto name = names.begin(); name != names.end(); ++name) {
      if (std::find(names.begin(), name, *name) != name) return true;
    }
    return false;
  }
  std::ranges::sort(names);
  return std::ranges::adjacent_find(names) != names.end();
}

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The power of ten of the first digit other than 0. Of interest for numbers that no double has, which are far from 1.
std::int64_t magnitude(std::string_view number) noexcept {
  constexpr std::int64_t exponent_max = std::int64_t{1} << 40;
  const std::size_t mark = std::min(number.find_first_of("eE"), number.size());
  std::int64_t exponent = 0;
  if (mark != number.size()) {
    std::string_view digits = number.substr(mark + 1);
    const bool negative = digits.front() == '-';
    if (negative || digits.front() == '+') digits.remove_prefix(1);
    for (const char c : digits) exponent = std::min(exponent * 10 + (c - '0'), exponent_max);
    if (negative) exponent = -exponent;
  }
  const std::string_view digits = number.substr(0, mark);
  const std::size_t first = digits.find_first_of("123456789");
  if (first == std::string_view::npos) return std::numeric_limits<std::int64_t>::min();
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  const std::int64_t distance = point - static_cast<std::int64_t>(first);
  return exponent + (distance > 0 ? distance - 1 : distance);
}

// Nothing for a number beyond the range of double.
std::optional<double> nearest_double(std::string_view number) noexcept {
  if (const std::optional<double> value = parse_double(number)) return value;
  if (magnitude(number) > 0) return std::nullopt;
  return number.starts_with('-') ? -0.0 : 0.0;
}

// The value of four hexadecimal digits; nothing for other characters.
std::optional<std::uint32_t> hex_of(std::string_view text) noexcept {
  if (text.size() < 4) return std::nullopt;
  std::uint32_t code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, code, 16);
  if (error != std::errc() || end != text.data() + 4) return std::nullopt;
  return code;
}

bool is_high_surrogate(std::uint32_t code) noexcept { return code >= 0xd800 && code < 0xdc00; }
bool is_low_surrogate(std::uint32_t code) noexcept { return code >= 0xdc00 && code < 0xe000; }

// Returns the length of the escape with which `text` begins; 0 if it is invalid.
std::size_t escape_bytes(std::string_view text) noexcept {
  constexpr std::size_t code_bytes = 6;
  if (text.size() < 2) return 0;
  if (text[1] != 'u') return std::string_view("\"\\/bfnrt").contains(text[1]) ? 2 : 0;
  const auto code = hex_of(text.substr(2));
  if (!code || is_low_surrogate(*code)) return 0;
  if (!is_high_surrogate(*code)) return code_bytes;
  const std::string_view second = text.substr(code_bytes);
  if (!second.starts_with("\\u")) return 0;
  const auto low = hex_of(second.substr(2));
  return low && is_low_surrogate(*low) ? 2 * code_bytes : 0;
}

void set_utf8(Escape& escape, std::uint32_t code) noexcept {
  const auto add = [&](std::uint32_t byte) { escape.utf8[escape.utf8_bytes++] = static_cast<char>(byte); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      add(0xe0 | code >> 12);
    } else {
      add(0xf0 | code >> 18);
      add(0x80 | (code >> 12 & 0x3f));
    }
    add(0x80 | (code >> 6 & 0x3f));
  }
  add(0x80 | (code & 0x3f));
}

}  // namespace

Escape escape_of(std::string_view written) noexcept {
  constexpr std::string_view letters = "bfnrt";
  constexpr std::string_view meanings = "\b\f\n\r\t";
  Escape escape;
  escape.written_bytes = static_cast<std::uint8_t>(escape_bytes(written));
  const char kind = written[1];
  if (kind != 'u') {
    const std::size_t at = letters.find(kind);
    set_utf8(escape, static_cast<unsigned char>(at == std::string_view::npos ? kind : meanings[at]));
    return escape;
  }
  std::uint32_t code = hex_of(written.substr(2)).value_or(0);
  if (is_high_surrogate(code)) {
    code = 0x10000 + ((code - 0xd800) << 10) + (hex_of(written.substr(8)).value_or(0) - 0xdc00);
  }
  set_utf8(escape, code);
  return escape;
}

Number number_of(const Token& token) noexcept {
  const std::string_view written = token.written;
  const char* const end = written.data() + written.size();
  const auto whole = [&](auto value) -> std::optional<Number> {
    const auto [stop, error] = std::from_chars(written.data(), end, value);
    return error == std::errc() && stop == end ? std::optional<Number>(value) : std::nullopt;
  };
  if (written == "-0") return -0.0;
  if (const auto value = written.starts_with('-') ? whole(std::int64_t{0}) : whole(std::uint64_t{0})) return *value;
  return double_of(token);
}

double double_of(const Token& token) noexcept { return nearest_double(token.written).value_or(0); }

void skip(JsonReader& reader, const Token& token) {
  int depth = 0;
  for (Token next = token;; next = reader.next()) {
    if (next.kind == TokenKind::invalid || next.kind == TokenKind::end) return;
    if (next.kind == TokenKind::begin_list || next.kind == TokenKind::begin_object) ++depth;
    if (next.kind == TokenKind::end_list || next.kind == TokenKind::end_object) --depth;
    if (depth == 0 && next.kind != TokenKind::name) return;
  }
}

Result<void> check(std::string_view text, Limits limits) {
  JsonReader reader(text, limits);
  for (;;) {
    const TokenKind kind = reader.next().kind;
    if (kind == TokenKind::end) return {};
    if (kind == TokenKind::invalid) return fail(ErrorCode::invalid_argument, reader.problem());
  }
}

Token JsonReader::refuse(std::string_view why) { return refuse_at(at_, why); }

Token JsonReader::refuse_at(std::size_t place, std::string_view why) {
  expected_ = Expected::invalid;
  problem_ = "invalid JSON at byte " + std::to_string(place) + ": " + std::string(why);
  return {.kind = TokenKind::invalid};
}

void JsonReader::skip_spaces() noexcept {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
    ++at_;
  }
}

Token JsonReader::next() {
  if (expected_ == Expected::invalid) return {.kind = TokenKind::invalid};
  for (;;) {
    skip_spaces();
    if (at_ == text_.size()) return expected_ == Expected::nothing ? Token() : refuse("the text ends too early");
    const char c = text_[at_];
    switch (expected_) {
      case Expected::nothing: return refuse("something follows the value");
      case Expected::comma_or_end:
        if (c != ',') return close(c);
        ++at_;
        expected_ = levels_.back().is_object ? Expected::name : Expected::value;
        continue;
      case Expected::name_or_end:
        if (c == '}') return close(c);
        return read_name();
      case Expected::name: return read_name();
      case Expected::value_or_end:
        if (c == ']') return close(c);
        return read_value(c);
      default: return read_value(c);
    }
  }
}

Token JsonReader::open(TokenKind kind) {
  if (levels_.size() >= limits_.depth_max) {
    return refuse("nested more than " + std::to_string(limits_.depth_max) + " deep");
  }
  ++at_;
  if (levels_.capacity() == 0) levels_.reserve(levels_expected);
  const bool is_object = kind == TokenKind::begin_object;
  levels_.push_back({.is_object = is_object, .names = names_.size()});
  expected_ = is_object ? Expected::name_or_end : Expected::value_or_end;
  return {.kind = kind};
}

Token JsonReader::close(char c) {
  const Level level = levels_.back();
  if (c != (level.is_object ? '}' : ']')) {
    return refuse(level.is_object ? "an object needs a comma or } here" : "a list needs a comma or ] here");
  }
  if (has_twins(std::span(names_).subspan(level.names))) return refuse("the object has two members of one name");
  names_.resize(level.names);
  levels_.pop_back();
  ++at_;
  expected_ = after_value();
  return {.kind = level.is_object ? TokenKind::end_object : TokenKind::end_list};
}

Token JsonReader::read_value(char c) {
  if (!has_value_left()) return refuse("there are too many values");
  switch (c) {
    case '{': return open(TokenKind::begin_object);
    case '[': return open(TokenKind::begin_list);
    case '"': return read_text(TokenKind::text);
    case 't': return read_word("true", TokenKind::boolean);
    case 'f': return read_word("false", TokenKind::boolean);
    case 'n': return read_word("null", TokenKind::null);
    default: return read_number();
  }
}

Token JsonReader::read_word(std::string_view word, TokenKind kind) {
  if (!text_.substr(at_).starts_with(word)) return refuse("a value is expected");
  const std::string_view written = text_.substr(at_, word.size());
  at_ += word.size();
  expected_ = after_value();
  return {.kind = kind, .written = written};
}

std::size_t JsonReader::take_digits() noexcept {
  const std::size_t begin = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  return at_ - begin;
}

Token JsonReader::read_number() {
  constexpr std::size_t harmless_bytes = 300;  // Without exponent, so many digits are in the range of double.
  const std::size_t begin = at_;
  const auto take = [&](std::string_view one_of) {
    const bool found = at_ < text_.size() && one_of.contains(text_[at_]);
    at_ += found ? 1 : 0;
    return found;
  };
  const bool negative = take("-");
  if (!take("0") && take_digits() == 0) return refuse(negative ? "a number needs a digit here" : "a value is expected");
  if (take(".") && take_digits() == 0) return refuse("a number needs a digit here");
  const bool has_exponent = take("eE");
  if (has_exponent) {
    take("+-");
    if (take_digits() == 0) return refuse("a number needs a digit here");
  }
  const std::string_view written = text_.substr(begin, at_ - begin);
  if ((has_exponent || written.size() > harmless_bytes) && !nearest_double(written)) {
    return refuse_at(begin, "the number is larger than every double");
  }
  expected_ = after_value();
  return {.kind = TokenKind::number, .written = written};
}

Token JsonReader::read_text(TokenKind kind) {
  const std::size_t begin = ++at_;
  Token token{.kind = kind};
  for (;;) {
    while (at_ < text_.size() && is_plain[static_cast<unsigned char>(text_[at_])]) ++at_;
    if (at_ == text_.size()) return refuse_at(begin - 1, "a text has no end");
    const char c = text_[at_];
    if (c == '"') {
      token.written = text_.substr(begin, at_++ - begin);
      expected_ = after_value();
      return token;
    }
    std::size_t bytes = 0;
    if (c == '\\') {
      bytes = escape_bytes(text_.substr(at_));
      if (bytes == 0) return refuse("a text has an invalid escape");
      token.escaped = true;
    } else {
      if (static_cast<unsigned char>(c) < 0x20) return refuse("a text has a control character: write an escape");
      bytes = utf8_character_bytes(text_.substr(at_));
      if (bytes == 0) return refuse("a text is not UTF-8");
      token.ascii = false;
    }
    at_ += bytes;
  }
}

Token JsonReader::read_name() {
  if (text_[at_] != '"') return refuse("the name of a member is expected, in quotation marks");
  if (!has_value_left()) return refuse("there are too many values");
  const Token token = read_text(TokenKind::name);
  if (token.kind == TokenKind::invalid) return token;
  skip_spaces();
  if (at_ == text_.size() || text_[at_] != ':') return refuse("a colon is expected after the name of a member");
  ++at_;
  if (names_.capacity() == 0) names_.reserve(names_expected);
  names_.push_back(token.written);
  expected_ = Expected::value;
  return token;
}

}  // namespace hawser::json
