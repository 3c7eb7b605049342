#include "protocol/grpc/proto_bytes.h"

#include <cstdint>

namespace hawser::protocol::grpc {
namespace {

// Wire types of Protocol Buffers.
constexpr unsigned varint_type = 0;
constexpr unsigned fixed64_type = 1;
constexpr unsigned bytes_type = 2;
constexpr unsigned fixed32_type = 5;

bool read_varint(std::string_view& in, std::uint64_t& value) noexcept {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

void add_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

}  // namespace

std::optional<ProtoField> ProtoFields::next() noexcept {
  if (malformed_ || rest_.empty()) return std::nullopt;
  malformed_ = true;  // Until the field has been read.
  std::uint64_t tag = 0;
  if (!read_varint(rest_, tag)) return std::nullopt;
  ProtoField field{.number = tag >> 3};
  std::uint64_t size = 0;
  switch (tag & 7) {
    case varint_type:
      if (!read_varint(rest_, field.value)) return std::nullopt;
      malformed_ = false;
      return field;
    case fixed64_type: size = 8; break;
    case bytes_type:
      if (!read_varint(rest_, size)) return std::nullopt;
      field.is_bytes = true;
      break;
    case fixed32_type: size = 4; break;
    default: return std::nullopt;
  }
  if (size > rest_.size()) return std::nullopt;
  field.bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  malformed_ = false;
  return field;
}

bool visit_fields(std::string_view message, const std::function<void(const ProtoField&)>& visit) {
  ProtoFields fields(message);
  while (const std::optional<ProtoField> field = fields.next()) visit(*field);
  return !fields.malformed();
}

std::optional<std::string> string_field(std::string_view message, unsigned number) {
  std::string found;
  const bool whole = visit_fields(message, [&](const ProtoField& field) {
    if (field.number == number && field.is_bytes) found = field.bytes;
  });
  if (!whole) return std::nullopt;
  return found;
}

void add_number_field(std::string& message, unsigned field, std::uint64_t value) {
  add_varint(message, (std::uint64_t{field} << 3) | varint_type);
  add_varint(message, value);
}

void add_bytes_field(std::string& message, unsigned field, std::string_view value) {
  add_varint(message, (std::uint64_t{field} << 3) | bytes_type);
  add_varint(message, value.size());
  message += value;
}

}  // namespace hawser::protocol::grpc
