#include "security/tls/json.h"

#include <utility>
#include <vector>

#include "json/reader.h"

namespace hawser::security::tls {
namespace {

// Makes the tree from the events of the reader.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, std::size_t values_max)
      : text_(text), reader_(text, {.depth_max = json_depth_max, .values_max = values_max}) {}

  std::optional<Json> build() {
    for (;;) {
      const json::Token token = reader_.next();
      switch (token.kind) {
        case json::TokenKind::end: return std::move(root_);
        case json::TokenKind::invalid: return std::nullopt;
        case json::TokenKind::name: decode(token, open_.back().json->names.emplace_back()); break;
        case json::TokenKind::null: add(Json::Kind::null).text = token.written; break;
        case json::TokenKind::boolean: add(Json::Kind::boolean).text = token.written; break;
        case json::TokenKind::number: add(Json::Kind::number).text = token.written; break;
        case json::TokenKind::text: decode(token, add(Json::Kind::text).text); break;
        case json::TokenKind::begin_list: open(Json::Kind::list); break;
        case json::TokenKind::begin_object: open(Json::Kind::object); break;
        case json::TokenKind::end_list:
        case json::TokenKind::end_object: close(); break;
      }
    }
  }

 private:
  struct Open {
    Json* json;  // Valid: an element has no neighbour behind it while it is open.
    std::size_t begin;
  };

  Json& add(Json::Kind kind) {
    Json& added = open_.empty() ? root_ : open_.back().json->items.emplace_back();
    added.kind = kind;
    return added;
  }
  void open(Json::Kind kind) {
    Json& added = add(kind);
    open_.push_back({.json = &added, .begin = reader_.offset() - 1});
  }
  void close() {
    const Open closed = open_.back();
    open_.pop_back();
    // Only the outermost object or list of nested ones is kept as it is written, so that memory stays linear.
    if (open_.size() == 1) closed.json->text = text_.substr(closed.begin, reader_.offset() - closed.begin);
  }

  const std::string_view text_;
  json::JsonReader reader_;
  Json root_;
  std::vector<Open> open_;
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
  return json::double_of({.kind = json::TokenKind::number, .written = text});
}

std::optional<Json> parse_json(std::string_view text, std::size_t values_max) {
  return TreeBuilder(text, values_max).build();
}

}  // namespace hawser::security::tls
