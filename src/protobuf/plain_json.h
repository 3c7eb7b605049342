#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "hawser/bytes.h"

namespace hawser::pb {

// Converts between JSON and the bytes of a message directly, several times as fast as libprotobuf. It knows a part of
// ProtoJSON: ASCII text, integers, booleans, enumerations by name, bytes, nested and repeated messages. It returns
// false for everything else, also for what is wrong; libprotobuf then decides. Immutable, thus thread-safe.
class PlainJson {
 public:
  explicit PlainJson(const google::protobuf::Descriptor* root);

  // Appends to `bytes`, which is unspecified if this returns false.
  bool to_bytes(std::string_view json, std::string& bytes) const;
  bool to_json(Bytes bytes, std::string& json) const;

 private:
  enum class Kind : std::uint8_t { text, bytes, int32, uint32, int64, uint64, boolean, enumeration, message, other };
  enum class Wire : std::uint8_t { varint = 0, zigzag, fixed64, length, fixed32 };
  struct Type;
  struct Field {
    Kind kind = Kind::other;
    Wire wire = Wire::varint;
    std::uint32_t number = 0;
    bool repeated = false;
    bool presence = false;
    std::uint64_t seen = 0;  // Its bit among the fields of the message.
    std::string quoted;      // The name in JSON with quotes and colon.
    const Type* message = nullptr;
    const google::protobuf::EnumDescriptor* enumeration = nullptr;
  };
  struct Type {
    std::vector<Field> fields;
    std::unordered_map<std::string_view, const Field*> by_name;
    std::unordered_map<std::uint32_t, const Field*> by_number;
  };
  struct FromJson;
  struct FromBytes;

  static Field describe(const google::protobuf::FieldDescriptor& field);
  const Type* add(const google::protobuf::Descriptor& message);

  std::unordered_map<const google::protobuf::Descriptor*, std::unique_ptr<Type>> types_;
  const Type* root_ = nullptr;
};

}  // namespace hawser::pb
