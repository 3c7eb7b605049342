#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hawser/codec.h"

// Messages of the services that the component has itself. They are so small that it needs no protobuf library.
namespace hawser::protocol::grpc {

// A whole protobuf message in its encoding.
struct ProtoBytes {
  std::string bytes;
};

// A field of a message.
struct ProtoField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;      // The value of a varint.
  bool is_bytes = false;        // The field is a string, bytes or a message.
  std::string_view bytes = {};  // The value, if it is not a varint.
};
// Reads the fields of a message one after the other.
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view message) noexcept : rest_(message) {}
  // The next field. Nothing: behind the last one, or the message is malformed from here on.
  std::optional<ProtoField> next() noexcept;
  bool malformed() const noexcept { return malformed_; }

 private:
  std::string_view rest_;
  bool malformed_ = false;
};
// Calls `visit` for each field in order. False if the message is malformed.
bool visit_fields(std::string_view message, const std::function<void(const ProtoField&)>& visit);
// The value of a field of type string or bytes; the last one counts. Empty text if it is absent, nothing if the message
// is malformed.
std::optional<std::string> string_field(std::string_view message, unsigned field);
// Appends a field of an integer type or an enumeration.
void add_number_field(std::string& message, unsigned field, std::uint64_t value);
// Appends a field of type string, bytes or message.
void add_bytes_field(std::string& message, unsigned field, std::string_view value);

}  // namespace hawser::protocol::grpc

template <>
struct hawser::codec::Codec<hawser::protocol::grpc::ProtoBytes> {
  static constexpr std::string_view signature = "protobuf";
  static constexpr std::size_t bytes_min = 0;
  static void size(Sizer& sizer, const protocol::grpc::ProtoBytes& value) { sizer.add(value.bytes.size()); }
  static void encode(Encoder& encoder, const protocol::grpc::ProtoBytes& value) {
    encoder.write(value.bytes.data(), value.bytes.size());
  }
  static bool decode(Decoder& decoder, protocol::grpc::ProtoBytes& value) {
    const std::size_t bytes = decoder.available();
    const std::byte* data = nullptr;
    if (!decoder.charge(bytes, "message") || !decoder.take(bytes, data, "message")) return false;
    value.bytes.assign(reinterpret_cast<const char*>(data), bytes);
    return true;
  }
};
