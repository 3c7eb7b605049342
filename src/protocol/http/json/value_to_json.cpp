#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "base/base64.h"
#include "base/utf8.h"
#include "hawser/codec/encoder.h"
#include "json/writer.h"
#include "protocol/http/json/value_json.h"

namespace hawser::protocol::http {
namespace {

using schema::Kind;
using schema::Type;

// Larger numbers lose digits in programs that read JSON numbers as double.
constexpr std::int64_t exact_max = std::int64_t{1} << 53;

class ValueReader {
 public:
  ValueReader(const ValueTypes& known, Bytes body, Bytes payload)
      : known_(known),
        in_(as_text(body)),
        payload_(as_text(payload)),
        values_left_(65'536 + 64 * (body.size() + payload.size())) {}

  Result<std::string> read(std::uint32_t type) {
    if (!value(type, 0)) return fail(std::move(error_));
    if (!in_.empty() || payload_at_ != payload_.size()) {
      fail_with("bytes follow the last value");
      return fail(std::move(error_));
    }
    return std::move(out_);
  }

 private:
  bool fail_with(std::string why, ErrorCode code = ErrorCode::protocol_error) {
    error_ = Error::of_call(code, "the value does not fit its description: " + std::move(why));
    return false;
  }
  bool take(std::size_t bytes, std::string_view& taken) {
    if (bytes > in_.size()) return fail_with("it ends too early");
    taken = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
    return true;
  }
  template <class T>
  bool take_number(T& number) {
    std::string_view bytes;
    if (!take(sizeof(T), bytes)) return false;
    std::memcpy(&number, bytes.data(), sizeof(T));
    return true;
  }
  // Reads the bytes of a sequence in the payload.
  bool take_payload(std::uint64_t count, std::size_t each, std::string_view& taken) {
    if (!payload_allowed_ || each == 0) return fail_with("a sequence may not be in the payload here");
    const std::size_t begin =
        (payload_at_ + codec::payload_alignment - 1) / codec::payload_alignment * codec::payload_alignment;
    if (begin > payload_.size() || count > (payload_.size() - begin) / each) {
      return fail_with("the payload ends too early");
    }
    taken = payload_.substr(begin, static_cast<std::size_t>(count) * each);
    payload_at_ = begin + taken.size();
    return true;
  }

  bool value(std::uint32_t index, std::size_t depth) {
    if (depth > json_depth_max) return fail_with("it is nested more than 64 deep", ErrorCode::limit_exceeded);
    if (values_left_-- == 0) return fail_with("it has too many values without bytes", ErrorCode::limit_exceeded);
    if (out_.size() > json_bytes_max) return fail_with("its JSON takes over 256 MiB", ErrorCode::limit_exceeded);
    const Type& type = known_.at(index);
    switch (type.kind) {
      case Kind::boolean: return boolean();
      case Kind::signed_integer:
      case Kind::unsigned_integer:
      case Kind::character:
      case Kind::floating: return number(type);
      case Kind::sequence:
      case Kind::set: return sequence(index, depth);
      case Kind::array: return elements(type.parts[0], type.size, depth);
      case Kind::map: return map(type, depth);
      case Kind::optional: return optional(type, depth);
      case Kind::variant: return variant(index, depth);
      case Kind::duration: return value(type.parts[0], depth + 1);
      case Kind::tuple: return tuple(type, depth);
      case Kind::structure: return structure(type, depth);
      case Kind::evolving: return evolving(type, depth);
      case Kind::message: return fail_with("a protobuf message among other values has no JSON");
      case Kind::custom: return fail_with("the type " + printable(type.name) + " has a codec of its own and no JSON");
    }
    return false;
  }

  bool boolean() {
    std::uint8_t byte = 0;
    if (!take_number(byte)) return false;
    if (byte > 1) return fail_with("a bool is neither 0 nor 1");
    out_ += byte == 1 ? "true" : "false";
    return true;
  }

  template <class T>
  bool floating() {
    T number = 0;
    if (!take_number(number)) return false;
    if (std::isfinite(number)) {
      json::append_number(out_, number);
    } else {
      out_ += std::isnan(number) ? "\"NaN\"" : number > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    }
    return true;
  }
  bool number(const Type& type) {
    if (type.kind == Kind::floating) return type.size == 4 ? floating<float>() : floating<double>();
    std::string_view bytes;
    if (!take(static_cast<std::size_t>(type.size), bytes)) return false;
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data(), bytes.size());
    if (type.kind == Kind::character && type.size == 1 && bits >= 0x20 && bits < 0x7f) {
      const char c = static_cast<char>(bits);
      json::append_text(out_, {&c, 1});
      return true;
    }
    if (type.kind != Kind::signed_integer) {
      if (name(type, static_cast<std::int64_t>(bits))) return true;
      const bool exact = bits <= static_cast<std::uint64_t>(exact_max);
      if (!exact) out_ += '"';
      json::append_number(out_, bits);
      if (!exact) out_ += '"';
      return true;
    }
    const unsigned unused = 64 - 8 * static_cast<unsigned>(type.size);
    const std::int64_t value = static_cast<std::int64_t>(bits << unused) >> unused;
    if (name(type, value)) return true;
    const bool exact = value <= exact_max && value >= -exact_max;
    if (!exact) out_ += '"';
    json::append_number(out_, value);
    if (!exact) out_ += '"';
    return true;
  }
  bool name(const Type& type, std::int64_t value) {
    const auto at = std::ranges::find(type.values, value);
    if (at == type.values.end()) return false;
    json::append_text(out_, type.names[static_cast<std::size_t>(at - type.values.begin())]);
    return true;
  }

  void text(std::string_view bytes) {
    if (is_utf8(bytes)) return json::append_text(out_, bytes);
    out_ += "{\"base64\":\"";
    encode_base64(bytes, out_);
    out_ += "\"}";
  }
  bool sequence(std::uint32_t index, std::size_t depth) {
    const Type& type = known_.at(index);
    std::uint32_t count = 0;
    if (!take_number(count)) return false;
    const std::uint32_t element = type.parts[0];
    const bool of_text = known_.is_text(index);
    const bool of_bytes = known_.is_bytes(index);
    std::string_view bytes;
    if ((count & codec::out_of_band_flag) != 0 && type.kind == Kind::sequence) {
      count &= ~codec::out_of_band_flag;
      if (!take_payload(count, known_.fixed_bytes(element), bytes)) return false;
      if (!of_text && !of_bytes) {
        std::swap(in_, bytes);
        if (!elements(element, count, depth)) return false;
        std::swap(in_, bytes);
        return true;
      }
    } else if (of_text || of_bytes) {
      if (!take(count, bytes)) return false;
    } else {
      return elements(element, count, depth);
    }
    if (of_text) {
      text(bytes);
    } else {
      out_ += '"';
      encode_base64(bytes, out_);
      out_ += '"';
    }
    return true;
  }
  bool elements(std::uint32_t element, std::uint64_t count, std::size_t depth) {
    out_ += '[';
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i != 0) out_ += ',';
      if (!value(element, depth + 1)) return false;
    }
    out_ += ']';
    return true;
  }

  // Entries become an object if every key has a text of its own, and a list of pairs otherwise.
  bool map(const Type& type, std::size_t depth) {
    std::uint32_t count = 0;
    if (!take_number(count)) return false;
    const Type& key = known_.at(type.parts[0]);
    if (known_.is_text(type.parts[0]) || (is_number(key) && key.kind != Kind::floating)) {
      const auto before = std::tuple(in_, payload_at_, out_.size());
      bool unique = true;
      if (!object(type, count, depth, unique)) return false;
      if (unique) return true;
      // Begins again. What was read stays counted in values_left_.
      std::size_t size = 0;
      std::tie(in_, payload_at_, size) = before;
      out_.resize(size);
    }
    out_ += '[';
    for (std::uint32_t i = 0; i < count; ++i) {
      out_ += i != 0 ? ",[" : "[";
      if (!value(type.parts[0], depth + 1)) return false;
      out_ += ',';
      if (!value(type.parts[1], depth + 1)) return false;
      out_ += ']';
    }
    out_ += ']';
    return true;
  }
  bool object(const Type& type, std::uint32_t count, std::size_t depth, bool& unique) {
    std::set<std::string> keys;
    out_ += '{';
    for (std::uint32_t i = 0; i < count; ++i) {
      if (i != 0) out_ += ',';
      const std::size_t begin = out_.size();
      if (!value(type.parts[0], depth + 1)) return false;
      if (out_[begin] == '{') return !(unique = false);  // A text that is not UTF-8.
      if (out_[begin] != '"') {
        out_.insert(begin, 1, '"');
        out_ += '"';
      }
      if (!keys.insert(out_.substr(begin)).second) return !(unique = false);
      out_ += ':';
      if (!value(type.parts[1], depth + 1)) return false;
    }
    out_ += '}';
    return true;
  }

  bool optional(const Type& type, std::size_t depth) {
    std::uint8_t present = 0;
    if (!take_number(present)) return false;
    if (present > 1) return fail_with("the presence of a value is neither 0 nor 1");
    if (present == 1) return value(type.parts[0], depth + 1);
    out_ += "null";
    return true;
  }
  bool variant(std::uint32_t index, std::size_t depth) {
    std::uint8_t alternative = 0;
    if (!take_number(alternative)) return false;
    const Type& type = known_.at(index);
    if (alternative >= type.parts.size()) return fail_with("a variant has no alternative of that index");
    out_ += '{';
    json::append_text(out_, known_.keys(index)[alternative]);
    out_ += ':';
    if (!value(type.parts[alternative], depth + 1)) return false;
    out_ += '}';
    return true;
  }
  bool tuple(const Type& type, std::size_t depth) {
    out_ += '[';
    for (std::size_t i = 0; i < type.parts.size(); ++i) {
      if (i != 0) out_ += ',';
      if (!value(type.parts[i], depth + 1)) return false;
    }
    out_ += ']';
    return true;
  }
  bool field(const Type& type, std::size_t i, std::size_t depth) {
    if (i != 0) out_ += ',';
    json::append_text(out_, type.names[i]);
    out_ += ':';
    return value(type.parts[i], depth + 1);
  }
  bool structure(const Type& type, std::size_t depth) {
    out_ += '{';
    for (std::size_t i = 0; i < type.parts.size(); ++i) {
      if (!field(type, i, depth)) return false;
    }
    out_ += '}';
    return true;
  }
  bool evolving(const Type& type, std::size_t depth) {
    std::uint32_t length = 0;
    std::string_view own;
    if (!take_number(length) || !take(length, own)) return false;
    std::swap(in_, own);
    out_ += '{';
    const auto base = static_cast<std::size_t>(type.size);
    for (std::size_t i = 0; i < base; ++i) {
      if (!field(type, i, depth)) return false;
    }
    const bool outer_allowed = std::exchange(payload_allowed_, false);
    for (std::size_t i = base; i < type.parts.size() && !in_.empty(); ++i) {
      std::uint32_t signature = 0;
      if (!take_number(signature)) return false;
      if (signature != type.signatures[i]) return fail_with("an appended field has another type");
      if (!field(type, i, depth)) return false;
    }
    payload_allowed_ = outer_allowed;
    out_ += '}';
    std::swap(in_, own);
    return true;
  }

  const ValueTypes& known_;
  std::string_view in_;
  std::string_view payload_;
  std::size_t payload_at_ = 0;
  bool payload_allowed_ = true;
  std::size_t values_left_;
  std::string out_;
  Error error_;
};

}  // namespace

Result<std::string> value_to_json(const ValueTypes& known, std::uint32_t type, Bytes body, Bytes payload) {
  return ValueReader(known, body, payload).read(type);
}

}  // namespace hawser::protocol::http
