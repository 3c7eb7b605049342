#include "protobuf/plain_json.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/base64.h"
#include "json/reader.h"
#include "json/writer.h"

namespace hawser::pb {

namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Deeper messages are left to libprotobuf.
constexpr int depth_max = 32;
constexpr std::size_t fields_max = 64;

// Types with a JSON form of their own, such as Timestamp.
bool has_own_form(const google::protobuf::FileDescriptor& file) { return file.package() == "google.protobuf"; }

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

template <class T>
void append_fixed(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

}  // namespace

PlainJson::PlainJson(const Descriptor* root) {
  if (root != nullptr && !has_own_form(*root->file())) root_ = add(*root);
}

const PlainJson::Type* PlainJson::add(const Descriptor& message) {
  const auto [at, added] = types_.try_emplace(&message, nullptr);
  if (!added) return at->second.get();
  at->second = std::make_unique<Type>();
  Type& type = *at->second;
  // Fields beyond fields_max are unknown here.
  const auto count = std::min<std::size_t>(fields_max, static_cast<std::size_t>(message.field_count()));
  type.fields.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const FieldDescriptor& descriptor = *message.field(static_cast<int>(i));
    Field& field = type.fields.emplace_back(describe(descriptor));
    field.seen = std::uint64_t{1} << i;
    if (field.kind == Kind::message) field.message = add(*descriptor.message_type());
    type.by_name.emplace(descriptor.json_name(), &field);
    type.by_name.emplace(descriptor.name(), &field);
    type.by_number.emplace(field.number, &field);
  }
  return &type;
}

PlainJson::Field PlainJson::describe(const FieldDescriptor& field) {
  Field out;
  out.number = static_cast<std::uint32_t>(field.number());
  out.repeated = field.is_repeated();
  out.presence = field.has_presence();
  out.quoted.append("\"").append(field.json_name()).append("\":");
  if (field.is_map() || field.real_containing_oneof() != nullptr) return out;
  for (const char c : field.json_name()) {
    if (c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == 0x7f) return out;
  }
  const auto set = [&out](Kind kind, Wire wire) {
    out.kind = kind;
    out.wire = wire;
  };
  switch (field.type()) {
    case FieldDescriptor::TYPE_STRING: set(Kind::text, Wire::length); break;
    case FieldDescriptor::TYPE_BYTES: set(Kind::bytes, Wire::length); break;
    case FieldDescriptor::TYPE_INT32: set(Kind::int32, Wire::varint); break;
    case FieldDescriptor::TYPE_SINT32: set(Kind::int32, Wire::zigzag); break;
    case FieldDescriptor::TYPE_SFIXED32: set(Kind::int32, Wire::fixed32); break;
    case FieldDescriptor::TYPE_UINT32: set(Kind::uint32, Wire::varint); break;
    case FieldDescriptor::TYPE_FIXED32: set(Kind::uint32, Wire::fixed32); break;
    case FieldDescriptor::TYPE_INT64: set(Kind::int64, Wire::varint); break;
    case FieldDescriptor::TYPE_SINT64: set(Kind::int64, Wire::zigzag); break;
    case FieldDescriptor::TYPE_SFIXED64: set(Kind::int64, Wire::fixed64); break;
    case FieldDescriptor::TYPE_UINT64: set(Kind::uint64, Wire::varint); break;
    case FieldDescriptor::TYPE_FIXED64: set(Kind::uint64, Wire::fixed64); break;
    case FieldDescriptor::TYPE_BOOL: set(Kind::boolean, Wire::varint); break;
    case FieldDescriptor::TYPE_ENUM:
      if (!has_own_form(*field.enum_type()->file())) set(Kind::enumeration, Wire::varint);
      out.enumeration = field.enum_type();
      break;
    case FieldDescriptor::TYPE_MESSAGE:
      if (!has_own_form(*field.message_type()->file())) set(Kind::message, Wire::length);
      break;
    default: break;
  }
  return out;
}

// ---- JSON to bytes ----

// Each function that reads a value is called with its first token.
struct PlainJson::FromJson {
  json::JsonReader reader;

  static bool is_plain(const json::Token& token) { return token.ascii && !token.escaped; }

  static void write_tag(std::string& out, const Field& field) {
    constexpr std::uint32_t wire_types[] = {0, 0, 1, 2, 5};
    append_varint(out, field.number << 3 | wire_types[static_cast<std::size_t>(field.wire)]);
  }
  static void write_length(std::string& out, const Field& field, std::string_view bytes) {
    write_tag(out, field);
    append_varint(out, bytes.size());
    out.append(bytes);
  }
  static void write_number(std::string& out, const Field& field, std::uint64_t value) {
    if (value == 0 && !field.presence && !field.repeated) return;
    write_tag(out, field);
    const bool narrow = field.kind == Kind::int32;
    switch (field.wire) {
      case Wire::fixed32: return append_fixed(out, static_cast<std::uint32_t>(value));
      case Wire::fixed64: return append_fixed(out, value);
      case Wire::zigzag: {
        const auto number = static_cast<std::int64_t>(value);
        const std::uint64_t zigzag = value << 1 ^ static_cast<std::uint64_t>(number >> 63);
        return append_varint(out, narrow ? static_cast<std::uint32_t>(zigzag) : zigzag);
      }
      default: return append_varint(out, value);
    }
  }

  template <class T>
  static bool number(const Field& field, const json::Token& token, std::string& out) {
    if (token.kind != json::TokenKind::number && (token.kind != json::TokenKind::text || !is_plain(token)))
      return false;
    const std::string_view digits = token.written;
    const std::string_view magnitude = digits.substr(digits.starts_with('-') ? 1 : 0);
    if (magnitude.empty() || (magnitude.front() == '0' && digits.size() > 1)) return false;
    T value{};
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || stop != digits.data() + digits.size()) return false;
    write_number(out, field, static_cast<std::uint64_t>(value));
    return true;
  }

  bool element(const Field& field, const json::Token& token, std::string& out, int depth) {
    const bool is_text = token.kind == json::TokenKind::text && is_plain(token);
    const std::string_view text = token.written;
    switch (field.kind) {
      case Kind::text:
        if (!is_text) return false;
        if (!text.empty() || field.presence || field.repeated) write_length(out, field, text);
        return true;
      case Kind::bytes: {
        std::string bytes;
        if (!is_text || !decode_base64(text, bytes)) return false;
        if (!bytes.empty() || field.presence || field.repeated) write_length(out, field, bytes);
        return true;
      }
      case Kind::int32: return number<std::int32_t>(field, token, out);
      case Kind::uint32: return number<std::uint32_t>(field, token, out);
      case Kind::int64: return number<std::int64_t>(field, token, out);
      case Kind::uint64: return number<std::uint64_t>(field, token, out);
      case Kind::boolean:
        if (token.kind != json::TokenKind::boolean) return false;
        write_number(out, field, text == "true" ? 1 : 0);
        return true;
      case Kind::enumeration: {
        if (!is_text) return false;
        const auto* const value = field.enumeration->FindValueByName(std::string(text));
        if (value == nullptr) return false;
        write_number(out, field, static_cast<std::uint64_t>(std::int64_t{value->number()}));
        return true;
      }
      case Kind::message: {
        std::string bytes;
        if (!object(*field.message, token, bytes, depth + 1)) return false;
        write_length(out, field, bytes);
        return true;
      }
      case Kind::other: break;
    }
    return false;
  }

  bool value(const Field& field, std::string& out, int depth) {
    json::Token token = reader.next();
    if (!field.repeated) return element(field, token, out, depth);
    if (token.kind != json::TokenKind::begin_list) return false;
    for (token = reader.next(); token.kind != json::TokenKind::end_list; token = reader.next()) {
      if (!element(field, token, out, depth)) return false;
    }
    return true;
  }

  bool object(const Type& type, const json::Token& first, std::string& out, int depth) {
    if (depth > depth_max || first.kind != json::TokenKind::begin_object) return false;
    std::uint64_t seen = 0;
    for (json::Token token = reader.next(); token.kind != json::TokenKind::end_object; token = reader.next()) {
      if (token.kind != json::TokenKind::name || token.escaped) return false;
      const auto found = type.by_name.find(token.written);
      if (found == type.by_name.end()) return false;
      const Field& field = *found->second;
      // A field has two names, so the reader does not find all that are given twice.
      if ((seen & field.seen) != 0 || !value(field, out, depth)) return false;
      seen |= field.seen;
    }
    return true;
  }
};

bool PlainJson::to_bytes(std::string_view json, std::string& bytes) const {
  if (root_ == nullptr) return false;
  FromJson from{.reader = json::JsonReader(json, {.depth_max = 2 * depth_max + 2})};
  return from.object(*root_, from.reader.next(), bytes, 0) && from.reader.next().kind == json::TokenKind::end;
}

// ---- Bytes to JSON ----

struct PlainJson::FromBytes {
  const char* at;
  const char* end;

  std::size_t available() const { return static_cast<std::size_t>(end - at); }
  bool varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && at != end; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at++);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool length(std::string_view& bytes) {
    std::uint64_t size = 0;
    if (!varint(size) || size > available()) return false;
    bytes = {at, static_cast<std::size_t>(size)};
    at += size;
    return true;
  }
  template <class T>
  bool fixed(std::uint64_t& value) {
    T number{};
    if (available() < sizeof(T)) return false;
    std::memcpy(&number, at, sizeof(T));
    at += sizeof(T);
    value = number;
    return true;
  }

  // libprotobuf escapes the other characters in its own way.
  static bool text(std::string_view text, std::string& out) {
    const auto is_plain = [](char c) {
      return c >= 0x20 && c != '<' && c != '>' && c != 0x7f;
    };  // ASCII: char is signed.
    if (!std::ranges::all_of(text, is_plain)) return false;
    json::append_text(out, text);
    return true;
  }
  bool number(const Field& field, std::string& out) {
    std::uint64_t value = 0;
    const bool read = field.wire == Wire::fixed32   ? fixed<std::uint32_t>(value)
                      : field.wire == Wire::fixed64 ? fixed<std::uint64_t>(value)
                                                    : varint(value);
    if (!read) return false;
    if (field.wire == Wire::zigzag) {
      if (field.kind == Kind::int32) value = static_cast<std::uint32_t>(value);
      value = value >> 1 ^ (~(value & 1) + 1);
    }
    switch (field.kind) {
      case Kind::int32: json::append_number(out, std::int64_t{static_cast<std::int32_t>(value)}); return true;
      case Kind::uint32: json::append_number(out, std::uint64_t{static_cast<std::uint32_t>(value)}); return true;
      case Kind::boolean: out += value != 0 ? "true" : "false"; return true;
      case Kind::enumeration: {
        const auto* const named = field.enumeration->FindValueByNumber(static_cast<std::int32_t>(value));
        if (named == nullptr) return false;
        (out += '"').append(named->name()) += '"';
        return true;
      }
      default: break;
    }
    out.push_back('"');
    if (field.kind == Kind::int64) {
      json::append_number(out, static_cast<std::int64_t>(value));
    } else {
      json::append_number(out, value);
    }
    out.push_back('"');
    return true;
  }

  bool element(const Field& field, std::string& out, int depth) {
    if (field.wire != Wire::length) return number(field, out);
    std::string_view bytes;
    if (!length(bytes)) return false;
    if (field.kind == Kind::text) return text(bytes, out);
    if (field.kind == Kind::message) {
      return FromBytes{bytes.data(), bytes.data() + bytes.size()}.object(*field.message, out, depth + 1);
    }
    out.push_back('"');
    encode_base64(bytes, out);
    out.push_back('"');
    return true;
  }

  // The elements of one field, whose tag has been read.
  bool elements(const Field& field, std::uint64_t tag, std::string& out, int depth) {
    constexpr std::uint32_t wire_types[] = {0, 0, 1, 2, 5};
    const auto wire_type = wire_types[static_cast<std::size_t>(field.wire)];
    if (!field.repeated) return (tag & 7) == wire_type && element(field, out, depth);
    out.push_back('[');
    for (bool first = true;; first = false) {
      if (!first) out.push_back(',');
      if ((tag & 7) == wire_type) {
        if (!element(field, out, depth)) return false;
      } else if ((tag & 7) == 2) {
        std::string_view packed;
        if (!length(packed) || packed.empty()) return false;
        FromBytes inner{packed.data(), packed.data() + packed.size()};
        while (true) {
          if (!inner.number(field, out)) return false;
          if (inner.at == inner.end) break;
          out.push_back(',');
        }
      } else {
        return false;
      }
      const char* const before = at;
      if (at == end) break;
      if (!varint(tag)) return false;
      if (tag >> 3 != field.number) {
        at = before;
        break;
      }
    }
    out.push_back(']');
    return true;
  }

  bool object(const Type& type, std::string& out, int depth) {
    if (depth > depth_max) return false;
    out.push_back('{');
    std::uint64_t seen = 0;
    while (at != end) {
      std::uint64_t tag = 0;
      if (!varint(tag) || tag >> 3 > std::numeric_limits<std::uint32_t>::max()) return false;
      const auto found = type.by_number.find(static_cast<std::uint32_t>(tag >> 3));
      if (found == type.by_number.end()) return false;
      const Field& field = *found->second;
      if (field.kind == Kind::other || (seen & field.seen) != 0) return false;
      if (seen != 0) out.push_back(',');
      seen |= field.seen;
      out += field.quoted;
      if (!elements(field, tag, out, depth)) return false;
    }
    out.push_back('}');
    return true;
  }
};

bool PlainJson::to_json(Bytes bytes, std::string& json) const {
  if (root_ == nullptr) return false;
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  return FromBytes{begin, begin + bytes.size()}.object(*root_, json, 0);
}

}  // namespace hawser::pb
