#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"
#include "hawser/schema.h"

// Facts about the types of a description that has been checked.
namespace hawser::protocol::http {

// Nesting of JSON values.
inline constexpr std::size_t json_depth_max = 64;

// The types of a description that has been checked: all indices are valid, all types have the parts of their kind, and
// names are UTF-8. Types may still contain themselves without end. Immutable.
class ValueTypes {
 public:
  // The description may come from a hostile server. Fails with protocol_error.
  static Result<ValueTypes> check(schema::Description description);

  const schema::Description& description() const noexcept { return description_; }
  const schema::Type& at(std::uint32_t type) const noexcept { return description_.types[type]; }
  // The size of a value in the body if all values of the type have the same; 0 otherwise, and if it takes no byte.
  std::size_t fixed_bytes(std::uint32_t type) const noexcept { return fixed_bytes_[type]; }
  // The keys of the alternatives of a variant in JSON: the labels; the index where several have one label.
  const std::vector<std::string>& keys(std::uint32_t variant) const noexcept { return keys_[variant]; }

  bool is_text(std::uint32_t type) const noexcept;   // A sequence of char.
  bool is_bytes(std::uint32_t type) const noexcept;  // A sequence of std::byte or alike.

 private:
  explicit ValueTypes(schema::Description description);
  std::size_t find_fixed_bytes(std::uint32_t type, std::vector<bool>& begun);

  schema::Description description_;
  std::vector<std::size_t> fixed_bytes_;
  std::vector<std::vector<std::string>> keys_;
};

// A number, character or enumeration.
inline bool is_number(const schema::Type& type) noexcept { return type.kind <= schema::Kind::floating; }

// The name of a type in a few words, such as "int32" or "list of app::Row". Contains no control characters.
std::string label(const schema::Description& description, std::uint32_t type);
// Replaces control characters and what is not UTF-8, so that a terminal shows the text and does not obey it.
std::string printable(std::string_view text);

}  // namespace hawser::protocol::http
