#include "security/tls/pkcs11/uri.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>

#include "base/ascii_case.h"
#include "base/escaped_text.h"

namespace hawser::security::tls {
namespace {

constexpr std::string_view scheme = "pkcs11:";
constexpr std::size_t shown_bytes_max = 256;

int digit_of(char one) {
  if (one >= '0' && one <= '9') return one - '0';
  if (one >= 'a' && one <= 'f') return one - 'a' + 10;
  if (one >= 'A' && one <= 'F') return one - 'A' + 10;
  return -1;
}

// Appends to `made`. Returns false for text that is not percent-encoded correctly.
template <class Text>
bool decode(std::string_view text, Text& made) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      made.append(std::string_view(&text[i], 1));
      continue;
    }
    const int high = i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? digit_of(text[i + 2]) : -1;
    if (high < 0 || low < 0) return false;
    const char one = static_cast<char>(high * 16 + low);
    made.append(std::string_view(&one, 1));
    i += 2;
  }
  return true;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string made;
  return decode(text, made) ? std::optional(std::move(made)) : std::nullopt;
}

// Returns where the attribute of a PIN begins.
std::size_t find_pin(std::string_view text) {
  constexpr std::string_view name = "pin-value";
  const auto found = std::ranges::search(text, name, {}, ascii_lower);
  return found.empty() ? std::string_view::npos : static_cast<std::size_t>(found.begin() - text.begin());
}

// Takes the next "name=value" of `rest`.
std::pair<std::string_view, std::string_view> take(std::string_view& rest, char separator) {
  const std::string_view one = rest.substr(0, rest.find(separator));
  rest.remove_prefix(one.size() == rest.size() ? one.size() : one.size() + 1);
  const std::size_t equals = one.find('=');
  return {one.substr(0, equals), equals == std::string_view::npos ? std::string_view() : one.substr(equals + 1)};
}

// The member for an attribute of the path that is a text. Null: it is another one.
std::string* text_member(Pkcs11Uri& uri, std::string_view name) {
  if (name == "token") return &uri.token;
  if (name == "manufacturer") return &uri.manufacturer;
  if (name == "model") return &uri.model;
  if (name == "serial") return &uri.serial;
  if (name == "object") return &uri.object;
  if (name == "id") return &uri.id;
  return nullptr;
}

// Each sets the member for an attribute of the path, or of the query. Returns why it is refused.
std::optional<std::string> set_attribute(Pkcs11Uri& uri, std::string_view name, std::string_view value) {
  std::optional<std::string> text = decoded(value);
  if (!text) return "the value of '" + std::string(name) + "' is not percent-encoded correctly (RFC 7512)";
  if (std::string* const member = text_member(uri, name)) {
    *member = std::move(*text);
  } else if (name == "slot-id") {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error != std::errc() || end != text->data() + text->size()) return "slot-id must be a number";
    uri.slot = number;
  } else if (name == "type" ? *text != "private" : !name.empty()) {
    return "the attribute '" + std::string(name) +
           "' is not supported: use token, serial, manufacturer, model, slot-id, object, id and type=private";
  }
  return std::nullopt;
}

std::optional<std::string> set_query_attribute(Pkcs11Uri& uri, std::string_view name, std::string_view value) {
  // The name of the attribute may be a part of a PIN that is not encoded.
  constexpr std::string_view wrong = "a value of its query is not percent-encoded correctly (RFC 7512)";
  if (name == "pin-value") {
    uri.pin.emplace();
    return decode(value, *uri.pin) ? std::nullopt : std::optional<std::string>(wrong);
  }
  const std::optional<std::string> text = decoded(value);
  if (!text) return std::string(wrong);
  if (name == "module-path") {
    uri.module_path = *text;
  } else if (name == "pin-source") {
    uri.pin_file = text->starts_with("file:") ? text->substr(5) : *text;
    if (uri.pin_file.starts_with("//")) uri.pin_file.erase(0, 2);
    if (uri.pin_file.empty() || uri.pin_file.front() == '|') return "pin-source must be a file that contains the PIN";
  } else if (name == "module-name") {
    return "module-name is not supported: give the file of the module with module-path";
  }
  return std::nullopt;
}

}  // namespace

Result<Pkcs11Uri> parse_pkcs11_uri(std::string_view uri) {
  Pkcs11Uri made;
  std::string_view path = uri.substr(scheme.size());
  const std::size_t mark = path.find('?');
  std::string_view query = mark == std::string_view::npos ? std::string_view() : path.substr(mark + 1);
  path = path.substr(0, mark);
  // Attributes that the query should have may be in the path by mistake.
  const std::size_t secret = find_pin(path);
  made.shown = scheme;
  append_escaped(made.shown, path.substr(0, secret), shown_bytes_max);
  const auto refused = [&made](const std::string& what) {
    return fail(ErrorCode::invalid_argument, "the key " + made.shown + ": " + what);
  };
  if (secret != std::string_view::npos) {
    made.shown += "...";
    return refused(
        "pin-value is an attribute of the query: write '?' before the first of module-path, pin-source and "
        "pin-value, and '&' between them");
  }
  while (!path.empty()) {
    const auto [name, value] = take(path, ';');
    if (const auto fault = set_attribute(made, name, value)) return refused(*fault);
  }
  while (!query.empty()) {
    const auto [name, value] = take(query, '&');
    if (const auto fault = set_query_attribute(made, name, value)) return refused(*fault);
  }
  if (made.pin && !made.pin_file.empty()) return refused("it has pin-value and pin-source: give one of them");
  if (made.object.empty() && made.id.empty()) {
    return refused("it does not say which key: add object=LABEL or id=%XX");
  }
  return made;
}

}  // namespace hawser::security::tls
