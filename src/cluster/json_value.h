#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"

namespace hawser::cluster {

// A value of JSON, for documents that are small and whose fields are checked one by one.
struct JsonValue {
  enum class Kind : std::uint8_t { null, boolean, number, text, list, object };

  // Null if there is no such member, or if this is not an object.
  const JsonValue* find(std::string_view name) const noexcept {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) return items[i].kind == Kind::null ? nullptr : &items[i];
    }
    return nullptr;
  }

  Kind kind = Kind::null;
  std::string text;  // A text; for a boolean, `true` or `false`.
  double number = 0;
  std::vector<JsonValue> items;    // Values of a list or of an object, in order.
  std::vector<std::string> names;  // Names of the values of an object.
};

// At most 100,000 values in 32 levels. Fails with `invalid_argument`.
Result<JsonValue> read_json(std::string_view text);

}  // namespace hawser::cluster
