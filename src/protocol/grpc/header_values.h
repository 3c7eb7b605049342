#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hawser/time.h"

// Values of header fields of gRPC (doc/PROTOCOL-HTTP2.md of gRPC).
namespace hawser::protocol::grpc {

// grpc-timeout: 1 to 8 digits and a unit. Empty if the text is malformed. A duration that does not fit is `forever`.
std::optional<Duration> parse_timeout(std::string_view text) noexcept;
// Rounds up to the finest unit with which the number has at most 8 digits. A negative duration becomes "0n".
std::string format_timeout(Duration timeout);

// grpc-message: bytes outside of 0x20 to 0x7E, and %, are written as % and two hexadecimal digits.
// Cuts UTF-8 behind a character, so that the result has at most `encoded_bytes_max` bytes.
std::string percent_encode(std::string_view text, std::size_t encoded_bytes_max = SIZE_MAX);
// Leaves escapes that are malformed as they are.
std::string percent_decode(std::string_view text);

// Values of fields whose names end in -bin. The encoder emits no padding; the decoder accepts text with and without it.
std::string base64_encode(std::string_view bytes);
// Appends the decoded bytes. False if the text is not base64.
bool base64_decode(std::string_view text, std::string& bytes);

// True if `name` can be the name of a metadata field: 0-9, a-z, '_', '-' and '.'.
bool is_metadata_name(std::string_view name) noexcept;
// Names of fields that begin with "grpc-" and are metadata nevertheless.
inline constexpr std::string_view status_details_name = "grpc-status-details-bin";
inline constexpr std::string_view retry_pushback_name = "grpc-retry-pushback-ms";
inline constexpr std::string_view previous_attempts_name = "grpc-previous-rpc-attempts";
// The pause that grpc-retry-pushback-ms asks for. A negative one, which forbids a retry, if the text is not a number.
Duration parse_pushback(std::string_view text) noexcept;
// True if the name belongs to the protocol, so that it is not metadata: "grpc-..." except the names above, "te",
// "content-type", "user-agent", and fields that HTTP/2 forbids.
bool is_reserved_name(std::string_view name) noexcept;
inline bool is_binary_name(std::string_view name) noexcept { return name.ends_with("-bin"); }
// True if all bytes are in 0x20 to 0x7E.
bool is_plain_value(std::string_view value) noexcept;

}  // namespace hawser::protocol::grpc
