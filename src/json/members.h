#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include "json/reader.h"

// Reads large documents token by token, without a tree: a list of 10,000 servers has more values than a tree may have.
// A value of another kind than the one that is wanted is skipped.
namespace hawser::json {

// Calls `member(name, token)` for each member of the object that begins with `begin`; it reads the whole value.
template <class Member>
void each_member(JsonReader& reader, const Token& begin, Member member) {
  if (begin.kind != TokenKind::begin_object) return skip(reader, begin);
  for (Token name = reader.next(); name.kind == TokenKind::name; name = reader.next()) {
    member(name.written, reader.next());
  }
}

// Calls `item(token)` for each item of the list that begins with `begin`; it reads the whole value.
template <class Item>
void each_item(JsonReader& reader, const Token& begin, Item item) {
  if (begin.kind != TokenKind::begin_list) return skip(reader, begin);
  for (Token next = reader.next(); next.kind != TokenKind::end_list; next = reader.next()) {
    if (next.kind == TokenKind::invalid || next.kind == TokenKind::end) return;
    item(next);
  }
}

// A text that is longer is cut behind the limit, so that a later check finds it. Empty: not a text.
inline std::string text_value(JsonReader& reader, const Token& token, std::size_t bytes_max) {
  std::string text;
  if (token.kind != TokenKind::text) {
    skip(reader, token);
    return text;
  }
  Token cut = token;
  // An escape may have six bytes for one.
  if (!cut.escaped) cut.written = cut.written.substr(0, bytes_max + 1);
  decode(cut, text);
  if (text.size() > bytes_max) text.resize(bytes_max + 1);
  return text;
}

inline bool truth_value(JsonReader& reader, const Token& token, bool otherwise) {
  if (token.kind == TokenKind::boolean) return token.written == "true";
  skip(reader, token);
  return otherwise;
}

// 0: not a whole number of that type.
template <class Whole>
Whole whole_value(JsonReader& reader, const Token& token) {
  Whole number = 0;
  if (token.kind != TokenKind::number) {
    skip(reader, token);
    return number;
  }
  const char* const end = token.written.data() + token.written.size();
  const auto [stop, status] = std::from_chars(token.written.data(), end, number);
  return status == std::errc() && stop == end ? number : Whole{0};
}

}  // namespace hawser::json
