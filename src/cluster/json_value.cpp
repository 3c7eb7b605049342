#include "cluster/json_value.h"

#include "base/try.h"
#include "json/reader.h"

namespace hawser::cluster {
namespace {

using json::JsonReader;
using json::Token;
using json::TokenKind;

constexpr json::Limits value_limits{.depth_max = 32, .values_max = 100'000};

// The value that begins with `token`. The depth of the text bounds the recursion. An invalid text gives a part of it.
JsonValue value_of(JsonReader& reader, const Token& token) {
  JsonValue value;
  switch (token.kind) {
    case TokenKind::boolean:
    case TokenKind::text:
      value.kind = token.kind == TokenKind::text ? JsonValue::Kind::text : JsonValue::Kind::boolean;
      json::decode(token, value.text);
      break;
    case TokenKind::number:
      value.kind = JsonValue::Kind::number;
      value.number = json::double_of(token);
      break;
    case TokenKind::begin_list:
      value.kind = JsonValue::Kind::list;
      for (Token next = reader.next(); next.kind != TokenKind::end_list && next.kind != TokenKind::invalid;
           next = reader.next()) {
        value.items.push_back(value_of(reader, next));
      }
      break;
    case TokenKind::begin_object:
      value.kind = JsonValue::Kind::object;
      for (Token next = reader.next(); next.kind == TokenKind::name; next = reader.next()) {
        json::decode(next, value.names.emplace_back());
        value.items.push_back(value_of(reader, reader.next()));
      }
      break;
    default: break;
  }
  return value;
}

}  // namespace

Result<JsonValue> read_json(std::string_view text) {
  TRY(json::check(text, value_limits));
  JsonReader reader(text, value_limits);
  return value_of(reader, reader.next());
}

}  // namespace hawser::cluster
