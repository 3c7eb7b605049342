#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/base64.h"
#include "base/decimal_text.h"
#include "hawser/codec/encoder.h"
#include "json/reader.h"
#include "protocol/http/json/value_json.h"

namespace hawser::protocol::http {
namespace {

using schema::Kind;
using schema::Type;

// A JSON value that is neither an object nor an array.
using Scalar = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string_view>;

// An object or array that is being read.
struct OpenValue {
  enum class Form {
    list,      // Values of the types `types`: arguments, a tuple, a pair of a map.
    sequence,  // Elements behind their count.
    array,     // Elements.
    record,    // A struct.
    entries,   // A map as an object.
    pairs,     // A map as a list of pairs.
    choice,    // A variant: {"alternative": value}.
    base64,    // {"base64": text} for a text that is not UTF-8.
  };
  Form form = Form::list;
  std::uint32_t type = 0;
  std::span<const std::uint32_t> types = {};
  std::string* out = nullptr;
  std::size_t mark = 0;  // The place of the count in `out`.
  std::size_t count = 0;
  // For a struct: the encoded fields, and which of them were given.
  std::vector<std::string> fields = {};
  std::vector<bool> given = {};
  std::size_t field = 0;
  std::string key = {};
};
using Form = OpenValue::Form;

template <class T>
void append_number(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

// Writes the encoding of the events of a reader. A struct's fields may come in any order, so each is encoded on its own
// until the struct ends.
class ValueEncoder {
 public:
  ValueEncoder(const ValueTypes& known, std::span<const std::uint32_t> types, bool is_arguments)
      : known_(known), types_(types), is_arguments_(is_arguments) {}

  Result<std::string> read(std::string_view json) {
    json::JsonReader reader(json, {.depth_max = json_depth_max});
    json::Token token = reader.next();
    while (token.kind != json::TokenKind::end && encode(token)) token = reader.next();
    if (token.kind == json::TokenKind::invalid) fail_with(reader.problem());
    if (failed_) return fail(std::move(error_));
    return std::move(out_);
  }

 private:
  bool fail_with(std::string_view why) {
    if (std::exchange(failed_, true)) return false;
    error_ = Error::of_call(ErrorCode::invalid_argument, "JSON: " + place() + std::string(why));
    return false;
  }
  bool fail_for(std::uint32_t type, std::string_view why) {
    return fail_with(label(known_.description(), type) + ": " + std::string(why));
  }
  // The path to the value that is being read, such as "[0].rows[3]: ".
  std::string place() const {
    std::string path;
    for (const OpenValue& frame : stack_) {
      if (path.size() > 200) break;
      const bool named = frame.form == Form::record || frame.form == Form::entries || frame.form == Form::choice;
      if (named && !frame.key.empty()) {
        path += "." + printable(std::string_view(frame.key).substr(0, 100));
      } else if (!named && frame.count != 0) {
        path += "[" + std::to_string(frame.count - 1) + "]";
      }
    }
    return path.empty() ? path : path + ": ";
  }

  bool encode(const json::Token& token);
  bool begin_object();
  bool key(std::string_view name);
  bool end_object();
  bool begin_array();
  bool end_array();
  bool scalar(const Scalar& value);
  // Finds the type of the next value, and where its bytes go.
  bool next(std::uint32_t& type, std::string*& out);
  // Resolves optional values that are present.
  bool unwrap(std::uint32_t& type, std::string& out);
  bool put(std::uint32_t type, std::string& out, const Scalar& value);
  bool put_number(std::uint32_t type, std::string& out, const Scalar& value);
  template <class T>
  bool put_integer(std::uint32_t type, std::string& out, const Scalar& value);
  bool put_floating(std::uint32_t type, std::string& out, const Scalar& value);
  bool push(Form form, std::uint32_t type, std::string& out, std::span<const std::uint32_t> types = {});
  bool begin_count(Form form, std::uint32_t type, std::string& out);
  bool end_record(OpenValue& frame);
  bool end_values(OpenValue& frame);

  const ValueTypes& known_;
  const std::span<const std::uint32_t> types_;
  const bool is_arguments_;
  std::string out_;
  std::string text_;  // A text or name that had escapes.
  std::vector<OpenValue> stack_;
  bool failed_ = false;
  Error error_;
};

bool ValueEncoder::encode(const json::Token& token) {
  const auto text = [&] {
    if (!token.escaped) return token.written;
    text_.clear();
    decode(token, text_);
    return std::string_view(text_);
  };
  switch (token.kind) {
    case json::TokenKind::null: return scalar({});
    case json::TokenKind::boolean: return scalar(token.written == "true");
    case json::TokenKind::number:
      return std::visit([&](auto number) { return scalar(number); }, json::number_of(token));
    case json::TokenKind::text: return scalar(text());
    case json::TokenKind::begin_list: return begin_array();
    case json::TokenKind::end_list: return end_array();
    case json::TokenKind::begin_object: return begin_object();
    case json::TokenKind::name: return key(text());
    case json::TokenKind::end_object: return end_object();
    case json::TokenKind::end:
    case json::TokenKind::invalid: break;
  }
  return false;
}

bool ValueEncoder::next(std::uint32_t& type, std::string*& out) {
  if (stack_.empty()) {
    if (types_.size() != 1) {
      return fail_with("the method takes " + std::to_string(types_.size()) +
                       " arguments: give a JSON array with one element for each");
    }
    type = types_[0];
    out = &out_;
    return true;
  }
  OpenValue& frame = stack_.back();
  out = frame.out;
  const auto part = [&](std::size_t i) { return known_.at(frame.type).parts[i]; };
  switch (frame.form) {
    case Form::list:
      if (frame.count++ >= frame.types.size()) {
        return fail_with("there are more than " + count_text(frame.types.size(), "value"));
      }
      type = frame.types[frame.count - 1];
      return true;
    case Form::sequence:
      if (++frame.count > codec::count_max) return fail_with("there are too many elements");
      type = part(0);
      return true;
    case Form::array:
      if (frame.count++ >= known_.at(frame.type).size) {
        return fail_for(frame.type, "the array in JSON has more elements");
      }
      type = part(0);
      return true;
    case Form::record:
      type = part(frame.field);
      out = &frame.fields[frame.field];
      return true;
    case Form::entries: type = part(1); return true;
    case Form::choice: type = part(frame.field); return true;
    case Form::pairs: return fail_for(frame.type, "an entry is not an array of key and value");
    case Form::base64: return fail_with("the value of \"base64\" is a string");
  }
  return false;
}

bool ValueEncoder::unwrap(std::uint32_t& type, std::string& out) {
  for (std::size_t depth = 0; known_.at(type).kind == Kind::optional; ++depth) {
    if (depth > json_depth_max) return fail_with("nested more than 64 deep");
    out += '\1';
    type = known_.at(type).parts[0];
  }
  return true;
}

bool ValueEncoder::scalar(const Scalar& value) {
  if (!stack_.empty() && stack_.back().form == Form::base64) {
    const auto* text = std::get_if<std::string_view>(&value);
    std::string bytes;
    if (text == nullptr || !decode_base64(*text, bytes)) return fail_with("no Base64 with padding");
    append_number(*stack_.back().out, static_cast<std::uint32_t>(bytes.size()));
    *stack_.back().out += bytes;
    return true;
  }
  std::uint32_t type = 0;
  std::string* out = nullptr;
  if (!next(type, out)) return false;
  if (std::holds_alternative<std::monostate>(value)) {
    if (known_.at(type).kind != Kind::optional) return fail_for(type, "null is not a value of this type");
    *out += '\0';
    return true;
  }
  return unwrap(type, *out) && put(type, *out, value);
}

bool ValueEncoder::put(std::uint32_t type, std::string& out, const Scalar& value) {
  const Type& known = known_.at(type);
  if (known.kind == Kind::duration) return put_number(known.parts[0], out, value);
  if (is_number(known)) return put_number(type, out, value);
  const auto* text = std::get_if<std::string_view>(&value);
  if (text != nullptr && (known_.is_text(type) || known_.is_bytes(type))) {
    std::string bytes;
    if (known_.is_bytes(type)) {
      if (!decode_base64(*text, bytes)) return fail_for(type, "the string is not Base64 with padding");
      text = nullptr;
    }
    const std::string_view content = text != nullptr ? *text : std::string_view(bytes);
    if (content.size() > codec::count_max) return fail_for(type, "the string is longer than 2 GiB");
    append_number(out, static_cast<std::uint32_t>(content.size()));
    out += content;
    return true;
  }
  switch (known.kind) {
    case Kind::structure:
    case Kind::evolving: return fail_for(type, "give a JSON object");
    case Kind::map: return fail_for(type, "give a JSON object, or an array of [key, value]");
    case Kind::variant: return fail_for(type, "give {\"alternative\": value}");
    case Kind::message: return fail_for(type, "a protobuf message among other values has no JSON");
    case Kind::custom: return fail_for(type, "a type with a codec of its own has no JSON");
    default: return fail_for(type, "give a JSON array");
  }
}

template <class T>
bool ValueEncoder::put_integer(std::uint32_t type, std::string& out, const Scalar& value) {
  const auto refuse = [&] {
    return fail_for(type, "give an integer from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
                              std::to_string(std::numeric_limits<T>::max()));
  };
  T number = 0;
  if (const auto* negative = std::get_if<std::int64_t>(&value)) {
    if (!std::in_range<T>(*negative)) return refuse();
    number = static_cast<T>(*negative);
  } else if (const auto* positive = std::get_if<std::uint64_t>(&value)) {
    if (!std::in_range<T>(*positive)) return refuse();
    number = static_cast<T>(*positive);
  } else if (const auto* real = std::get_if<double>(&value)) {
    // Such as 1e3. From 2^53 on, digits may be lost.
    constexpr double exact_end = 9007199254740992.0;
    if (std::abs(*real) >= exact_end || std::trunc(*real) != *real) return refuse();
    if (!std::in_range<T>(static_cast<std::int64_t>(*real))) return refuse();
    number = static_cast<T>(*real);
  } else if (const auto* text = std::get_if<std::string_view>(&value)) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error != std::errc() || end != text->data() + text->size() || text->empty()) return refuse();
  } else {
    return refuse();
  }
  append_number(out, number);
  return true;
}

bool ValueEncoder::put_floating(std::uint32_t type, std::string& out, const Scalar& value) {
  double number = 0;
  if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  } else if (const auto* negative = std::get_if<std::int64_t>(&value)) {
    number = static_cast<double>(*negative);
  } else if (const auto* positive = std::get_if<std::uint64_t>(&value)) {
    number = static_cast<double>(*positive);
  } else if (const auto* text = std::get_if<std::string_view>(&value);
             text != nullptr && (*text == "NaN" || *text == "Infinity" || *text == "-Infinity")) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    number = *text == "NaN" ? std::numeric_limits<double>::quiet_NaN() : *text == "Infinity" ? infinity : -infinity;
  } else {
    return fail_for(type, "give a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
  }
  if (known_.at(type).size == 8) {
    append_number(out, number);
    return true;
  }
  // The largest float is written as 3.4028235e+38, which is larger than it. Beyond the middle between it and 2^128, no
  // float is the nearest one.
  constexpr double float_end = 0x1.ffffffp127;
  if (std::isfinite(number) && std::abs(number) >= float_end) return fail_for(type, "the number is too large");
  append_number(out, static_cast<float>(number));
  return true;
}

bool ValueEncoder::put_number(std::uint32_t type, std::string& out, const Scalar& value) {
  const Type& known = known_.at(type);
  const auto* text = std::get_if<std::string_view>(&value);
  if (known.kind == Kind::boolean) {
    // A key of a map is a text.
    const bool from_key = text != nullptr && (*text == "true" || *text == "false");
    if (!from_key && !std::holds_alternative<bool>(value)) return fail_for(type, "give true or false");
    out += (from_key ? *text == "true" : std::get<bool>(value)) ? '\1' : '\0';
    return true;
  }
  if (known.kind == Kind::floating) return put_floating(type, out, value);
  if (text != nullptr && known.kind == Kind::character && known.size == 1 && text->size() == 1) {
    out += (*text)[0];
    return true;
  }
  if (text != nullptr && !known.names.empty()) {
    const auto at = std::ranges::find(known.names, *text);
    if (at != known.names.end()) {
      const std::int64_t number = known.values[static_cast<std::size_t>(at - known.names.begin())];
      out.append(reinterpret_cast<const char*>(&number), static_cast<std::size_t>(known.size));
      return true;
    }
  }
  // Characters are unsigned here, whatever the compiler does.
  const bool is_signed = known.kind == Kind::signed_integer;
  switch (known.size) {
    case 1: return is_signed ? put_integer<std::int8_t>(type, out, value) : put_integer<std::uint8_t>(type, out, value);
    case 2:
      return is_signed ? put_integer<std::int16_t>(type, out, value) : put_integer<std::uint16_t>(type, out, value);
    case 4:
      return is_signed ? put_integer<std::int32_t>(type, out, value) : put_integer<std::uint32_t>(type, out, value);
    default:
      return is_signed ? put_integer<std::int64_t>(type, out, value) : put_integer<std::uint64_t>(type, out, value);
  }
}

// ---- Objects and arrays ----

bool ValueEncoder::push(Form form, std::uint32_t type, std::string& out, std::span<const std::uint32_t> types) {
  stack_.push_back({.form = form, .type = type, .types = types, .out = &out});
  return true;
}

// Leaves room for the count.
bool ValueEncoder::begin_count(Form form, std::uint32_t type, std::string& out) {
  if (!push(form, type, out)) return false;
  stack_.back().mark = out.size();
  append_number(out, std::uint32_t{0});
  return true;
}

bool ValueEncoder::begin_object() {
  if (stack_.empty() && is_arguments_ && types_.empty()) return push(Form::choice, 0, out_);  // Has no keys.
  std::uint32_t type = 0;
  std::string* out = nullptr;
  if (!next(type, out) || !unwrap(type, *out)) return false;
  const Type& known = known_.at(type);
  switch (known.kind) {
    case Kind::structure:
    case Kind::evolving:
      if (!push(Form::record, type, *out)) return false;
      stack_.back().fields.resize(known.parts.size());
      stack_.back().given.resize(known.parts.size());
      return true;
    case Kind::map: return begin_count(Form::entries, type, *out);
    case Kind::variant: return push(Form::choice, type, *out);
    default:
      if (known_.is_text(type)) return push(Form::base64, type, *out);
      return fail_for(type, "a JSON object is not a value of this type");
  }
}

bool ValueEncoder::key(std::string_view name) {
  OpenValue& frame = stack_.back();
  frame.key = name;
  const auto quoted = [&] { return "\"" + printable(name.substr(0, 100)) + "\""; };
  if (frame.form == Form::base64) {
    return (name == "base64" && frame.count++ == 0) ||
           fail_with("give a string, or an object with the only key \"base64\"");
  }
  if (frame.form == Form::choice && types_.empty() && stack_.size() == 1) {
    return fail_with("the method takes no arguments");
  }
  const Type& known = known_.at(frame.type);
  if (frame.form == Form::entries) {
    if (++frame.count > codec::count_max) return fail_with("there are too many entries");
    const Type& key_type = known_.at(known.parts[0]);
    if (!known_.is_text(known.parts[0]) && (!is_number(key_type) || key_type.kind == Kind::floating)) {
      return fail_for(frame.type, "its keys are not texts: give an array of [key, value]");
    }
    return put(known.parts[0], *frame.out, name);
  }
  if (frame.form == Form::choice) {
    if (frame.count++ != 0) return fail_for(frame.type, "a variant has one alternative");
    const std::vector<std::string>& keys = known_.keys(frame.type);
    const auto at = std::ranges::find(keys, name);
    std::size_t index = static_cast<std::size_t>(at - keys.begin());
    if (at == keys.end()) {
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
      if (error != std::errc() || end != name.data() + name.size() || index >= keys.size()) {
        std::string all;
        for (const std::string& one : keys) all += (all.empty() ? "" : ", ") + one;
        return fail_for(frame.type, quoted() + " is not an alternative: give one of " + all.substr(0, 500));
      }
    }
    frame.field = index;
    *frame.out += static_cast<char>(index);
    return true;
  }
  const auto at = std::ranges::find(known.names, name);
  if (at == known.names.end()) return fail_for(frame.type, "there is no field " + quoted());
  frame.field = static_cast<std::size_t>(at - known.names.begin());
  if (frame.given[frame.field]) return fail_for(frame.type, "the field " + quoted() + " is given twice");
  frame.given[frame.field] = true;
  return true;
}

bool ValueEncoder::end_object() {
  OpenValue frame = std::move(stack_.back());
  if (frame.form == Form::record) {
    const bool ended = end_record(frame);
    stack_.pop_back();
    return ended;
  }
  stack_.pop_back();
  if (frame.form == Form::choice && frame.count == 0 && !(stack_.empty() && types_.empty())) {
    return fail_for(frame.type, "a variant has one alternative");
  }
  if (frame.form == Form::base64 && frame.count == 0) return fail_with("the key \"base64\" is missing");
  if (frame.form == Form::entries) return end_values(frame);
  return true;
}

// Writes the fields in their order. Optional fields may be left out, and appended fields that no other follows.
bool ValueEncoder::end_record(OpenValue& frame) {
  const Type& known = known_.at(frame.type);
  const bool evolves = known.kind == Kind::evolving;
  const auto base = evolves ? static_cast<std::size_t>(known.size) : known.parts.size();
  std::size_t last = known.parts.size();
  while (last > base && !frame.given[last - 1]) --last;
  const std::size_t mark = frame.out->size();
  if (evolves) append_number(*frame.out, std::uint32_t{0});
  for (std::size_t i = 0; i < last; ++i) {
    if (!frame.given[i] && known_.at(known.parts[i]).kind != Kind::optional) {
      stack_.back().key.clear();
      return fail_for(frame.type, "the field \"" + printable(known.names[i]) + "\" is missing");
    }
    if (i >= base) append_number(*frame.out, known.signatures[i]);
    if (frame.given[i]) {
      *frame.out += frame.fields[i];
    } else {
      *frame.out += '\0';
    }
  }
  if (evolves) {
    const std::size_t bytes = frame.out->size() - mark - sizeof(std::uint32_t);
    if (bytes > UINT32_MAX) return fail_for(frame.type, "it takes more than 4 GiB");
    const auto length = static_cast<std::uint32_t>(bytes);
    std::memcpy(frame.out->data() + mark, &length, sizeof(length));
  }
  return true;
}

bool ValueEncoder::begin_array() {
  if (stack_.empty() && is_arguments_) return push(Form::list, 0, out_, types_);
  if (!stack_.empty() && stack_.back().form == Form::pairs) {
    OpenValue& frame = stack_.back();
    if (++frame.count > codec::count_max) return fail_with("there are too many entries");
    return push(Form::list, frame.type, *frame.out, known_.at(frame.type).parts);
  }
  std::uint32_t type = 0;
  std::string* out = nullptr;
  if (!next(type, out) || !unwrap(type, *out)) return false;
  const Type& known = known_.at(type);
  switch (known.kind) {
    case Kind::sequence:
    case Kind::set: return begin_count(Form::sequence, type, *out);
    case Kind::array: return push(Form::array, type, *out);
    case Kind::tuple: return push(Form::list, type, *out, known.parts);
    case Kind::map: return begin_count(Form::pairs, type, *out);
    default: return fail_for(type, "a JSON array is not a value of this type");
  }
}

bool ValueEncoder::end_array() {
  OpenValue frame = std::move(stack_.back());
  stack_.pop_back();
  return end_values(frame);
}

bool ValueEncoder::end_values(OpenValue& frame) {
  if (frame.form == Form::list && frame.count != frame.types.size()) {
    return fail_with("the list has " + count_text(frame.count, "value") + ": give " +
                     std::to_string(frame.types.size()));
  }
  if (frame.form == Form::array && frame.count != known_.at(frame.type).size) {
    return fail_for(frame.type, "the array in JSON has " + count_text(frame.count, "element"));
  }
  if (frame.form == Form::sequence || frame.form == Form::entries || frame.form == Form::pairs) {
    const auto count = static_cast<std::uint32_t>(frame.count);
    std::memcpy(frame.out->data() + frame.mark, &count, sizeof(count));
  }
  return true;
}

bool is_blank(std::string_view text) noexcept { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

}  // namespace

Result<std::string> arguments_from_json(const ValueTypes& known, std::span<const std::uint32_t> types,
                                        std::string_view json) {
  if (types.empty() && is_blank(json)) return std::string();
  return ValueEncoder(known, types, true).read(json);
}

Result<std::string> value_from_json(const ValueTypes& known, std::uint32_t type, std::string_view json) {
  return ValueEncoder(known, std::span(&type, 1), false).read(json);
}

}  // namespace hawser::protocol::http
