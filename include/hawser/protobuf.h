#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/message_lite.h>

#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/codec.h"

// Messages of Protocol Buffers as arguments, results and stream items. A message that is the only argument, the result
// or a stream item travels as exactly its protobuf bytes. Among other arguments and within containers, a length of 4
// bytes precedes it. Limits: message_bytes_max of server and client, and of DecodeLimits message_depth_max and the
// limits of memory. Link hawser::protobuf. docs/services.md describes services that are defined in .proto files.
namespace hawser::detail {
class SchemaBuilder;
}

namespace hawser::pb {

template <class T>
concept IsMessage = std::derived_from<T, google::protobuf::MessageLite>;

// Constants of one message type.
struct MessageFacts {
  explicit MessageFacts(const google::protobuf::Message& instance);
  explicit MessageFacts(const google::protobuf::MessageLite& instance);

  std::string name;       // Such as "demo.Order".
  std::string too_large;  // Texts for errors.
  std::string incomplete;
  // A flat message has neither messages nor repeated fields.
  bool flat = false;
  // Upper bound for the memory in bytes that a byte of an encoded message takes when it is decoded.
  std::size_t memory_factor = 0;
};
template <IsMessage T>
const MessageFacts& facts_of() {
  static const MessageFacts facts(T::default_instance());
  return facts;
}

// Decodes a message from exactly `bytes`. On false, decoder.error() names the message's type and the reason.
bool read_message(codec::Decoder& decoder, Bytes bytes, google::protobuf::Message& message, const MessageFacts& facts);
// Messages of the lite runtime do not state their memory. They are charged with four times their encoded size.
bool read_message(codec::Decoder& decoder, Bytes bytes, google::protobuf::MessageLite& message,
                  const MessageFacts& facts);

// For the description of methods: adds the name of the message, and its file with the files that it imports.
void describe_message(detail::SchemaBuilder& out, const google::protobuf::Message& message);
void describe_message(detail::SchemaBuilder& out, const google::protobuf::MessageLite& message);  // The name alone.

}  // namespace hawser::pb

namespace hawser::codec {

template <pb::IsMessage T>
inline constexpr bool is_whole_message<T> = true;

template <pb::IsMessage T>
struct Codec<T> {
  // The same for all messages: their evolution follows the rules of Protocol Buffers.
  static constexpr std::string_view signature = "protobuf";
  static void hawser_describe(detail::SchemaBuilder& out) { pb::describe_message(out, T::default_instance()); }
  static constexpr std::size_t bytes_min = sizeof(std::uint32_t);

  static void size_whole(Sizer& sizer, const T& value) {
    const std::size_t bytes = value.ByteSizeLong();
    sizer.add(bytes);
    if (bytes > INT_MAX) [[unlikely]]
      sizer.refuse(ErrorCode::limit_exceeded, pb::facts_of<T>().too_large.c_str());
    if (!value.IsInitialized()) [[unlikely]]
      sizer.refuse(ErrorCode::invalid_argument, pb::facts_of<T>().incomplete.c_str());
  }
  static void encode_whole(Encoder& encoder, const T& value) {
    const auto bytes = static_cast<std::size_t>(value.GetCachedSize());
    static_cast<void>(value.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(encoder.skip(bytes))));
  }
  static bool decode_whole(Decoder& decoder, T& value) {
    const std::size_t bytes = decoder.available();
    const std::byte* data = nullptr;
    return decoder.take(bytes, data, "message") && pb::read_message(decoder, {data, bytes}, value, pb::facts_of<T>());
  }

  static void size(Sizer& sizer, const T& value) {
    sizer.add(sizeof(std::uint32_t));
    size_whole(sizer, value);
  }
  static void encode(Encoder& encoder, const T& value) {
    encoder.write_count(static_cast<std::size_t>(value.GetCachedSize()));
    encode_whole(encoder, value);
  }
  static bool decode(Decoder& decoder, T& value) {
    std::uint32_t bytes = 0;
    const std::byte* data = nullptr;
    return decoder.read_scalar(bytes, "message") && decoder.take(bytes, data, "message") &&
           pb::read_message(decoder, {data, bytes}, value, pb::facts_of<T>());
  }
};

}  // namespace hawser::codec
