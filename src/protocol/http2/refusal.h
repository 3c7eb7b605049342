#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hawser::protocol::http2 {

// Bytes that a server sends to a client that it does not serve: SETTINGS, with which each side begins, and GOAWAY with
// the error code and the reason as debug data (RFC 9113, 6.5 and 6.8). A long reason is cut.
std::string refusal_frames(std::uint32_t http2_code, std::string_view why);

}  // namespace hawser::protocol::http2
