#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "hawser/time.h"

// Values of header fields that a session reads.
namespace hawser::protocol::http {

// The media type of a field Content-Type, without its parameters.
std::string_view media_type(std::string_view value) noexcept;

// Compared without case.
bool is_any_of(std::string_view text, std::initializer_list<std::string_view> names) noexcept;

// Fields that handlers receive as metadata.
bool is_metadata(std::string_view name) noexcept;

// The text between two values of a field that was sent twice; empty if the field is not a list (RFC 9110, 5.3).
std::string_view separator_of(std::string_view name) noexcept;

// Returns the time that the client waits, from the value of timeout-ms (milliseconds) or of grpc-timeout (a number and
// a unit). Nothing if the value is malformed.
std::optional<Duration> timeout_of(std::string_view value, bool with_unit) noexcept;

}  // namespace hawser::protocol::http
