#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heap/secret_memory.h"

namespace hawser::security::tls {

// A value of a JSON text, for tokens and keys. Its texts and values lie in secret memory.
struct Json {
  enum class Kind : std::uint8_t { null, boolean, number, text, list, object };
  Kind kind = Kind::null;
  SecretString text;               // text: decoded. Others: as they are written.
  SecretVector<Json> items;        // list: the elements. object: the values of its members.
  std::vector<std::string> names;  // object: the names, one for each of the items.

  const Json* find(std::string_view name) const noexcept;
  // The member of that name if it is a text; empty otherwise.
  std::string_view text_of(std::string_view name) const noexcept;
  // The value of a number, also of one with a fraction. Nothing for everything else.
  std::optional<double> number() const noexcept;
};

// As strict as json::JsonReader. Nesting is limited to json_depth_max, and the number of values and names to
// `values_max`.
inline constexpr std::size_t json_depth_max = 16;
std::optional<Json> parse_json(std::string_view text, std::size_t values_max);

}  // namespace hawser::security::tls
