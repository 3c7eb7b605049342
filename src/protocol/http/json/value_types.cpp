#include "protocol/http/json/value_types.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/try.h"
#include "base/utf8.h"

namespace hawser::protocol::http {
namespace {

using schema::Description;
using schema::Kind;
using schema::Type;

// Limits for the description of one method.
constexpr std::size_t types_max = 2'000;
constexpr std::size_t parts_max = 20'000;  // All types together.
constexpr std::size_t name_bytes_max = 4'096;
constexpr std::size_t label_bytes_max = 200;

constexpr std::uint64_t array_size_max = std::uint64_t{1} << 31;

std::unexpected<Error> invalid(std::string_view why) {
  return fail(ErrorCode::protocol_error, "the description of the method is invalid: " + std::string(why));
}

bool is_named(std::string_view name) noexcept { return name.size() <= name_bytes_max && is_utf8(name); }

// Number of parts that a type of this kind has; nothing if any number.
std::optional<std::size_t> parts_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::boolean:
    case Kind::signed_integer:
    case Kind::unsigned_integer:
    case Kind::character:
    case Kind::floating:
    case Kind::message:
    case Kind::custom: return 0;
    case Kind::sequence:
    case Kind::array:
    case Kind::set:
    case Kind::optional:
    case Kind::duration: return 1;
    case Kind::map: return 2;
    default: return std::nullopt;
  }
}

bool has_size(const Type& type) noexcept {
  switch (type.kind) {
    case Kind::boolean: return type.size == 1;
    case Kind::signed_integer:
    case Kind::unsigned_integer: return type.size == 1 || type.size == 2 || type.size == 4 || type.size == 8;
    case Kind::character: return type.size == 1 || type.size == 2 || type.size == 4;
    case Kind::floating: return type.size == 4 || type.size == 8;
    case Kind::array: return type.size <= array_size_max;
    case Kind::evolving: return type.size <= type.parts.size() && type.signatures.size() == type.parts.size();
    default: return true;
  }
}

// True if the element of the sequence is of that kind and takes one byte.
bool has_bytes(const Description& description, const Type& type, Kind kind) noexcept {
  if (type.kind != Kind::sequence) return false;
  const Type& element = description.types[type.parts[0]];
  return element.kind == kind && element.size == 1 && element.names.empty();
}

Result<void> find_defect(const Description& description) {
  const std::vector<Type>& types = description.types;
  if (types.size() > types_max) return invalid("it has more than 2,000 types");
  const auto known = [&](std::uint32_t index) { return index < types.size(); };
  const auto known_or_absent = [&](const std::optional<std::uint32_t>& index) { return !index || known(*index); };
  if (!std::ranges::all_of(description.arguments, known) || !known_or_absent(description.result) ||
      !known_or_absent(description.incoming) || !known_or_absent(description.outgoing)) {
    return invalid("a type has no description");
  }
  std::size_t parts = 0;
  for (const Type& type : types) {
    parts += type.parts.size();
    if (type.kind > Kind::custom) return invalid("a type has an unknown kind: this program is older than the server");
    if (parts > parts_max) return invalid("its types have more than 20,000 parts");
    if (const auto count = parts_of(type.kind); count && type.parts.size() != *count) {
      return invalid("a type has another number of parts than its kind");
    }
    if (!std::ranges::all_of(type.parts, known)) return invalid("a part has no description");
    if (!has_size(type)) return invalid("a type has an impossible size");
    if (!is_named(type.name) || !std::ranges::all_of(type.names, is_named)) {
      return invalid("a name is longer than 4,096 bytes, or no UTF-8");
    }
    const bool fields = type.kind == Kind::structure || type.kind == Kind::evolving;
    if (fields ? type.names.size() != type.parts.size() : type.names.size() != type.values.size()) {
      return invalid("a type has more or fewer names than parts");
    }
    if (fields) {
      std::vector<std::string_view> names(type.names.begin(), type.names.end());
      std::ranges::sort(names);
      if (std::ranges::adjacent_find(names) != names.end()) return invalid("two fields of a struct have one name");
    }
    if (type.kind == Kind::variant && (type.parts.empty() || type.parts.size() > 256)) {
      return invalid("a variant has no alternatives, or more than 256");
    }
    if (type.kind == Kind::duration) {
      const Type& number = types[type.parts[0]];
      if (!is_number(number) || number.kind == Kind::boolean) return invalid("a duration is not a number");
    }
  }
  return {};
}

// Appends until the label is too long, which also ends types that contain themselves.
void add_label(const Description& description, std::uint32_t index, std::string& out, std::size_t depth) {
  if (out.size() > label_bytes_max || depth > 16) {
    out += "...";
    return;
  }
  const Type& type = description.types[index];
  const auto part = [&](std::size_t i) { add_label(description, type.parts[i], out, depth + 1); };
  const auto list = [&](std::string_view begin) {
    out += begin;
    for (std::size_t i = 0; i < type.parts.size() && out.size() <= label_bytes_max; ++i) {
      if (i != 0) out += ", ";
      part(i);
    }
    out += ')';
  };
  if (!type.name.empty()) {
    out += printable(std::string_view(type.name).substr(0, label_bytes_max));
    return;
  }
  const std::string bits = std::to_string(8 * type.size);
  switch (type.kind) {
    case Kind::boolean: out += "bool"; break;
    case Kind::signed_integer: out += "int" + bits; break;
    case Kind::unsigned_integer: out += "uint" + bits; break;
    case Kind::character: out += type.size == 1 ? "char" : "char" + bits; break;
    case Kind::floating: out += type.size == 4 ? "float" : "double"; break;
    case Kind::sequence:
      if (has_bytes(description, type, Kind::character)) {
        out += "string";
      } else if (has_bytes(description, type, Kind::unsigned_integer)) {
        out += "bytes";
      } else {
        out += "list of ";
        part(0);
      }
      break;
    case Kind::array:
      out += "array of " + std::to_string(type.size) + " ";
      part(0);
      break;
    case Kind::set:
      out += "set of ";
      part(0);
      break;
    case Kind::map:
      out += "map of ";
      part(0);
      out += " to ";
      part(1);
      break;
    case Kind::optional:
      out += "optional ";
      part(0);
      break;
    case Kind::variant: list("variant("); break;
    case Kind::duration:
      out += "duration in " + std::to_string(type.numerator) + "/" + std::to_string(type.denominator) + " s as ";
      part(0);
      break;
    case Kind::tuple: list("tuple("); break;
    default: out += "struct"; break;
  }
}

}  // namespace

std::string label(const Description& description, std::uint32_t type) {
  std::string out;
  add_label(description, type, out, 0);
  return out;
}

ValueTypes::ValueTypes(Description description)
    : description_(std::move(description)), fixed_bytes_(description_.types.size()), keys_(description_.types.size()) {
  std::vector<bool> begun(description_.types.size());
  for (std::uint32_t i = 0; i < description_.types.size(); ++i) {
    find_fixed_bytes(i, begun);
    if (at(i).kind != Kind::variant) continue;
    std::vector<std::string>& keys = keys_[i];
    for (const std::uint32_t part : at(i).parts) keys.push_back(label(description_, part));
    const std::vector<std::string> labels = keys;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      if (std::ranges::count(labels, labels[k]) != 1) keys[k] = std::to_string(k);
    }
  }
}

Result<ValueTypes> ValueTypes::check(Description description) {
  TRY(find_defect(description));
  return ValueTypes(std::move(description));
}

// Each type is visited once. A type that contains itself has no fixed size.
std::size_t ValueTypes::find_fixed_bytes(std::uint32_t index, std::vector<bool>& begun) {
  if (begun[index]) return fixed_bytes_[index];
  begun[index] = true;
  const Type& type = at(index);
  std::size_t bytes = 0;
  if (is_number(type)) {
    bytes = static_cast<std::size_t>(type.size);
  } else if (type.kind == Kind::duration) {
    bytes = find_fixed_bytes(type.parts[0], begun);
  } else if (type.kind == Kind::array) {
    const std::size_t each = find_fixed_bytes(type.parts[0], begun);
    if (__builtin_mul_overflow(each, static_cast<std::size_t>(type.size), &bytes)) bytes = 0;
  } else if (type.kind == Kind::structure) {
    for (const std::uint32_t field : type.parts) {
      const std::size_t each = find_fixed_bytes(field, begun);
      if (each == 0 || __builtin_add_overflow(bytes, each, &bytes)) return 0;
    }
  }
  return fixed_bytes_[index] = bytes;
}

bool ValueTypes::is_text(std::uint32_t type) const noexcept {
  return has_bytes(description_, at(type), Kind::character);
}

bool ValueTypes::is_bytes(std::uint32_t type) const noexcept {
  return has_bytes(description_, at(type), Kind::unsigned_integer);
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = utf8_character_bytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    // C0 and C1 control characters, which begin escape sequences, and the marks that turn the direction of a text.
    const bool c1 = bytes == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    const bool direction =
        bytes == 3 && first == 0xE2 && (text[1] == '\x80' || text[1] == '\x81') &&
        ((static_cast<unsigned char>(text[2]) >= 0xA6 && static_cast<unsigned char>(text[2]) <= 0xAE) ||
         text[2] == '\x8E' || text[2] == '\x8F');
    if (bytes == 0 || first < 0x20 || first == 0x7f || c1 || direction) {
      out += '?';
      text.remove_prefix(std::max<std::size_t>(bytes, 1));
      continue;
    }
    out += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace hawser::protocol::http
