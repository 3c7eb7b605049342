#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hawser/bytes.h"
#include "hawser/error.h"
#include "protocol/http/json/value_types.h"

// JSON and the library's encoding of values; docs/protocols/http.md has the rules. Values are nested at most
// json_depth_max deep.
namespace hawser::protocol::http {

// Largest JSON text that is made of a result.
inline constexpr std::size_t json_bytes_max = std::size_t{256} << 20;

// Encodes the arguments of a method, whose types are `types`. A JSON array lists the arguments; another value is the
// only argument; blank text and {} stand for no arguments. Fails with invalid_argument, and names the place.
Result<std::string> arguments_from_json(const ValueTypes& known, std::span<const std::uint32_t> types,
                                        std::string_view json);
// Encodes one value, such as a stream item.
Result<std::string> value_from_json(const ValueTypes& known, std::uint32_t type, std::string_view json);

// Fails with protocol_error if the bytes are not a value of the type, or with limit_exceeded.
Result<std::string> value_to_json(const ValueTypes& known, std::uint32_t type, Bytes body, Bytes payload);

}  // namespace hawser::protocol::http
