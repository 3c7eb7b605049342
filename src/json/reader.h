#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hawser/error.h"

// The only reader of JSON in the library: RFC 8259 and nothing else. No I/O, no recursion.
//
// It refuses two members of one name in an object, because another reader might take the other member; text that is not
// UTF-8, also in an escape (a surrogate without its pair); a byte order mark; and a number beyond the range of double.
namespace hawser::json {

enum class TokenKind : std::uint8_t {
  null,
  boolean,
  number,
  text,
  begin_list,
  end_list,
  begin_object,
  name,  // The name of the member whose value follows.
  end_object,
  end,      // The whole text was valid.
  invalid,  // Reader::problem() says why. The events before are void.
};

struct Token {
  TokenKind kind = TokenKind::end;
  // `true` or `false`, a number as it is written, the characters between quotation marks. A part of the reader's input.
  std::string_view written = {};
  bool escaped = false;  // `written` has escapes: see decode().
  bool ascii = true;
};

struct Limits {
  std::size_t depth_max = 64;                                        // Objects and lists within each other.
  std::size_t values_max = std::numeric_limits<std::size_t>::max();  // Values and names, together.
};

class JsonReader {
 public:
  // `text` outlives the reader and its tokens.
  JsonReader(std::string_view text, Limits limits) noexcept : text_(text), limits_(limits) {}

  // Returns `end` and `invalid` again and again. Names that occur twice are found at the end of their object.
  Token next();
  // Bytes of the text that have been read: the end of the last token.
  std::size_t offset() const noexcept { return at_; }
  // Says where and why the text is invalid, such as "invalid JSON at byte 7: a text has no end". Bytes count from 0.
  const std::string& problem() const noexcept { return problem_; }

 private:
  enum class Expected : std::uint8_t { value, value_or_end, name, name_or_end, comma_or_end, nothing, invalid };
  struct Level {
    bool is_object = false;
    std::size_t names = 0;  // Names of the outer objects.
  };

  Token refuse(std::string_view why);
  Token refuse_at(std::size_t place, std::string_view why);
  void skip_spaces() noexcept;
  Token open(TokenKind kind);
  Token close(char c);
  Token read_value(char c);
  Token read_word(std::string_view word, TokenKind kind);
  Token read_number();
  Token read_text(TokenKind kind);
  Token read_name();
  std::size_t take_digits() noexcept;
  bool has_value_left() noexcept { return limits_.values_max != 0 && limits_.values_max-- != 0; }
  Expected after_value() const noexcept { return levels_.empty() ? Expected::nothing : Expected::comma_or_end; }

  std::string_view text_;
  std::size_t at_ = 0;
  Limits limits_;  // values_max: those that are left.
  Expected expected_ = Expected::value;
  std::vector<Level> levels_;
  std::vector<std::string_view> names_;  // The names in the open objects, as they are written.
  std::string problem_;
};

// The character of the escape with which `written` begins. `written` is a part of a token.
struct Escape {
  char utf8[4] = {};
  std::uint8_t utf8_bytes = 0;
  std::uint8_t written_bytes = 0;
};
Escape escape_of(std::string_view written) noexcept;

// Appends the text of a token. `Text` is any kind of std::basic_string<char>.
template <class Text>
void decode(const Token& token, Text& out) {
  std::string_view left = token.written;
  std::size_t at = token.escaped ? left.find('\\') : std::string_view::npos;
  for (; at != std::string_view::npos; at = left.find('\\')) {
    const Escape escape = escape_of(left.substr(at));
    out.append(left.data(), at);
    out.append(escape.utf8, escape.utf8_bytes);
    left.remove_prefix(at + escape.written_bytes);
  }
  out.append(left.data(), left.size());
}

// The value of a number. A whole one, written without fraction and exponent, is exact if 64 bits hold it. Every other
// one, and -0, is the nearest double; one that is too small for a double is 0.
using Number = std::variant<std::int64_t, std::uint64_t, double>;
Number number_of(const Token& token) noexcept;
double double_of(const Token& token) noexcept;

// Reads the rest of the value that begins with `token`.
void skip(JsonReader& reader, const Token& token);

// Fails with invalid_argument, in the words of JsonReader::problem().
Result<void> check(std::string_view text, Limits limits);

}  // namespace hawser::json
