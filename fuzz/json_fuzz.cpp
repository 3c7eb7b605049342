#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <variant>

#include "base/utf8.h"
#include "json/reader.h"
#include "json/writer.h"

// Arbitrary bytes as JSON, and as a text that is written as JSON. What is read and written again has the same values.
// Input: u8 depth_max | u8 values_max (0: no limit) | the bytes.
namespace hawser::json {
namespace {

void expect(bool condition) {
  if (!condition) std::abort();
}

// JSON without spaces of the events of a reader.
class Copy {
 public:
  // Empty if the text is invalid.
  static std::string of(std::string_view text, Limits limits) {
    JsonReader reader(text, limits);
    Copy copy;
    for (;;) {
      const Token token = reader.next();
      if (token.kind == TokenKind::invalid) {
        expect(!reader.problem().empty() && reader.next().kind == TokenKind::invalid);
        return {};
      }
      if (token.kind == TokenKind::end) {
        expect(reader.offset() == text.size() && reader.next().kind == TokenKind::end);
        return std::move(copy.out_);
      }
      expect(token.written.empty() || (token.written.data() >= text.data() &&
                                       token.written.data() + token.written.size() <= text.data() + text.size()));
      copy.add(token);
    }
  }

 private:
  void add(const Token& token) {
    const bool ends = token.kind == TokenKind::end_list || token.kind == TokenKind::end_object;
    if (!ends && !out_.empty() && !std::string_view("[{:").contains(out_.back())) out_ += ',';
    switch (token.kind) {
      case TokenKind::null: out_ += "null"; break;
      case TokenKind::boolean: out_ += token.written; break;
      case TokenKind::number: std::visit([&](auto number) { append_number(out_, number); }, number_of(token)); break;
      case TokenKind::text:
      case TokenKind::name: text(token); break;
      case TokenKind::begin_list: out_ += '['; break;
      case TokenKind::end_list: out_ += ']'; break;
      case TokenKind::begin_object: out_ += '{'; break;
      default: out_ += '}'; break;
    }
  }
  void text(const Token& token) {
    std::string decoded;
    decode(token, decoded);
    expect(is_utf8(decoded) && (token.escaped || decoded == token.written));
    append_text(out_, decoded);
    if (token.kind == TokenKind::name) out_ += ':';
  }

  std::string out_;
};

void expect_written(std::string_view text, Escapes escapes) {
  std::string json;
  append_text(json, text, escapes);
  JsonReader reader(json, {});
  const Token token = reader.next();
  expect(token.kind == TokenKind::text);
  std::string back;
  decode(token, back);
  expect(is_utf8(back) && (back == text) == is_utf8(text) && reader.next().kind == TokenKind::end);
}

void expect_number(std::string_view bytes) {
  double number = 0;
  if (bytes.size() < sizeof(number)) return;
  std::memcpy(&number, bytes.data(), sizeof(number));
  if (number - number != 0) return;  // Infinity and NaN.
  std::string json;
  append_number(json, number);
  JsonReader reader(json, {});
  const Token token = reader.next();
  const double back = double_of(token);
  expect(token.kind == TokenKind::number && std::memcmp(&back, &number, sizeof(number)) == 0);
}

}  // namespace
}  // namespace hawser::json

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hawser::json;
  if (size < 2) return 0;
  Limits limits{.depth_max = data[0]};
  if (data[1] != 0) limits.values_max = data[1];
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::string copy = Copy::of(text, limits);
  expect(copy.empty() == !check(text, limits));
  if (!copy.empty()) {
    expect(Copy::of(copy, limits) == copy);
    // A list or an object ends with its last byte.
    const bool closes = copy.back() == ']' || copy.back() == '}';
    expect(!closes || Copy::of(std::string_view(copy).substr(0, copy.size() - 1), limits).empty());
  }
  expect_written(text, Escapes::text);
  expect_written(text, Escapes::html);
  expect_number(text);
  return 0;
}
