#include "security/tls/json.h"

#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

namespace hawser::tls {
namespace {

class JsonReader {
 public:
  JsonReader(std::string_view text, std::size_t values_max) noexcept : text_(text), values_left_(values_max) {}

  bool read_all(Json& out) {
    if (!read_value(out, 0)) return false;
    skip_spaces();
    return at_ == text_.size();
  }

 private:
  void skip_spaces() noexcept {
    while (at_ < text_.size() && std::string_view(" \t\r\n").contains(text_[at_])) ++at_;
  }
  bool take(char c) noexcept {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) noexcept {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::size_t take_digits() noexcept {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - begin;
  }

  bool read_value(Json& out, int depth) {
    if (values_left_ == 0) return false;
    --values_left_;
    skip_spaces();
    if (at_ == text_.size()) return false;
    const std::size_t begin = at_;
    bool read = false;
    switch (text_[at_]) {
      case '{':
        out.kind = Json::Kind::object;
        read = depth < json_depth_max && read_object(out, depth);
        break;
      case '[':
        out.kind = Json::Kind::list;
        read = depth < json_depth_max && read_list(out, depth);
        break;
      case '"': out.kind = Json::Kind::text; return read_text(out.text);
      case 't':
        out.kind = Json::Kind::boolean;
        read = take_word("true");
        break;
      case 'f':
        out.kind = Json::Kind::boolean;
        read = take_word("false");
        break;
      case 'n': read = take_word("null"); break;
      default:
        out.kind = Json::Kind::number;
        read = read_number();
        break;
    }
    // Only the outermost object or list of nested ones is kept as it is written, so that memory stays linear.
    const bool nested = out.kind == Json::Kind::object || out.kind == Json::Kind::list;
    if (read && (!nested || depth == 1)) out.text = text_.substr(begin, at_ - begin);
    return read;
  }

  bool read_object(Json& out, int depth) {
    ++at_;
    skip_spaces();
    if (take('}')) return true;
    for (;;) {
      skip_spaces();
      SecretString name;
      if (values_left_ == 0 || !read_text(name) || out.find(name) != nullptr) return false;
      --values_left_;
      skip_spaces();
      if (!take(':')) return false;
      out.names.emplace_back(name);
      out.items.emplace_back();
      if (!read_value(out.items.back(), depth + 1)) return false;
      skip_spaces();
      if (take('}')) return true;
      if (!take(',')) return false;
    }
  }

  bool read_list(Json& out, int depth) {
    ++at_;
    skip_spaces();
    if (take(']')) return true;
    for (;;) {
      out.items.emplace_back();
      if (!read_value(out.items.back(), depth + 1)) return false;
      skip_spaces();
      if (take(']')) return true;
      if (!take(',')) return false;
    }
  }

  bool read_number() noexcept {
    take('-');
    if (!take('0') && take_digits() == 0) return false;
    if (take('.') && take_digits() == 0) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (take_digits() == 0) return false;
    }
    return true;
  }

  bool read_text(SecretString& out) {
    if (!take('"')) return false;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') {
        out.push_back(c);
      } else if (!read_escape(out)) {
        return false;
      }
    }
    return false;
  }

  bool read_escape(SecretString& out) {
    if (at_ == text_.size()) return false;
    switch (text_[at_++]) {
      case '"': out.push_back('"'); return true;
      case '\\': out.push_back('\\'); return true;
      case '/': out.push_back('/'); return true;
      case 'b': out.push_back('\b'); return true;
      case 'f': out.push_back('\f'); return true;
      case 'n': out.push_back('\n'); return true;
      case 'r': out.push_back('\r'); return true;
      case 't': out.push_back('\t'); return true;
      case 'u': break;
      default: return false;
    }
    std::uint32_t code = 0;
    if (!read_hex(code)) return false;
    if (code >= 0xdc00 && code < 0xe000) return false;
    if (code >= 0xd800 && code < 0xdc00) {
      std::uint32_t low = 0;
      if (!take_word("\\u") || !read_hex(low) || low < 0xdc00 || low >= 0xe000) return false;
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    append_utf8(code, out);
    return true;
  }

  bool read_hex(std::uint32_t& code) noexcept {
    if (text_.size() - at_ < 4) return false;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, begin + 4, code, 16);
    at_ += 4;
    return error == std::errc() && end == begin + 4;
  }

  static void append_utf8(std::uint32_t code, SecretString& out) {
    const auto add = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
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

  const std::string_view text_;
  std::size_t at_ = 0;
  std::size_t values_left_;
};

}  // namespace

const Json* Json::find(std::string_view name) const noexcept {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return &items[i];
  }
  return nullptr;
}

std::string_view Json::text_of(std::string_view name) const noexcept {
  const Json* const value = find(name);
  return value != nullptr && value->kind == Kind::text ? std::string_view(value->text) : std::string_view();
}

std::optional<double> Json::number() const noexcept {
  if (kind != Kind::number) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<Json> parse_json(std::string_view text, std::size_t values_max) {
  std::optional<Json> all = Json();
  if (!JsonReader(text, values_max).read_all(*all)) all.reset();
  return all;
}

}  // namespace hawser::tls
