#pragma once

#include <cstdint>

// Error codes of HTTP/2 (RFC 9113, section 7).
namespace hawser::protocol::http2 {

inline constexpr std::uint32_t no_error = 0;
inline constexpr std::uint32_t refused_stream = 7;
inline constexpr std::uint32_t cancel = 8;
inline constexpr std::uint32_t enhance_your_calm = 11;
inline constexpr std::uint32_t inadequate_security = 12;

}  // namespace hawser::protocol::http2
