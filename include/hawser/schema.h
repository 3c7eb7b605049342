#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Descriptions of the methods of a server, which it serves itself (ServerOptions::describe). They are made when they
// are asked for.
//
//   auto names = co_await client.call<hawser::schema::list>("");
//   auto method = co_await client.call<hawser::schema::describe>("shop::order");
namespace hawser::schema {

enum class Kind : std::uint8_t {
  boolean,
  signed_integer,
  unsigned_integer,
  character,
  floating,
  sequence,   // parts: the element.
  array,      // parts: the element. `size` elements.
  set,        // parts: the key.
  map,        // parts: the key and the value.
  optional,   // parts: the value. A value that may be absent, such as a std::unique_ptr.
  variant,    // parts: the alternatives.
  duration,   // parts: the number.
  tuple,      // parts: the elements. A pair too.
  structure,  // parts: the fields.
  evolving,   // parts: the fields, of which the first version had `size`.
  message,    // A protobuf message.
  custom,     // A type with a codec of the application.
};

struct Type {
  Kind kind = Kind::boolean;
  std::string name = {};                  // The name of a struct, enumeration or message; a custom codec's signature.
  std::uint64_t size = 0;                 // Bytes of a number, elements of an array, fields of the first version.
  std::vector<std::uint32_t> parts = {};  // Indices of Description::types.
  // The names of the fields, or the known names of an enumeration's values; a value without a name is left out.
  std::vector<std::string> names = {};
  std::vector<std::int64_t> values = {};       // The values to the names of an enumeration.
  std::vector<std::uint32_t> signatures = {};  // The signatures of the types of the fields.
  std::uint64_t numerator = 0;                 // The unit of a duration: numerator / denominator seconds.
  std::uint64_t denominator = 0;

  static constexpr std::size_t hawser_base_fields = 9;
};

// A method and the types of its values.
struct Description {
  std::string name = {};
  std::uint32_t id = 0;
  std::uint32_t signature = 0;
  std::vector<std::uint32_t> arguments = {};   // Indices of `types`, like the next three members.
  std::optional<std::uint32_t> result = {};    // Absent: void.
  std::optional<std::uint32_t> incoming = {};  // Items that the caller sends.
  std::optional<std::uint32_t> outgoing = {};  // Items that the handler sends.
  std::vector<Type> types = {};
  // FileDescriptorProto, encoded, of the .proto files that define the messages and the service, with the files that
  // they import.
  std::vector<std::string> files = {};

  static constexpr std::size_t hawser_base_fields = 9;
};

struct Names {
  std::vector<std::string> names = {};  // In the order of their bytes.
  bool more = false;                    // There are more: ask for the names after the last one.

  static constexpr std::size_t hawser_base_fields = 2;
};

// Largest number of names that list() returns.
inline constexpr std::size_t names_max = 1000;

// Served by every server. They have no definition: they are called through a client.
// Returns the names of the methods after `after`.
Names list(std::string_view after);
// Fails with invalid_argument if there is no such method, or if its types are not known.
Description describe(std::string_view name);

}  // namespace hawser::schema
