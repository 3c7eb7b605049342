#include "protocol/http2/refusal.h"

#include <nghttp2/nghttp2.h>

#include <cstddef>

namespace hawser::protocol::http2 {
namespace {

// Longest text of a GOAWAY frame that refuses a connection.
constexpr std::size_t refusal_text_bytes_max = 512;

}  // namespace

std::string refusal_frames(std::uint32_t http2_code, std::string_view why) {
  const std::string_view text = why.substr(0, refusal_text_bytes_max);
  std::string frames(9, '\0');
  frames[3] = NGHTTP2_SETTINGS;
  const std::size_t body_bytes = 8 + text.size();
  std::string goaway(9 + 8, '\0');
  goaway[1] = static_cast<char>(body_bytes >> 8);
  goaway[2] = static_cast<char>(body_bytes & 0xff);
  goaway[3] = NGHTTP2_GOAWAY;
  goaway[16] = static_cast<char>(http2_code);
  return frames.append(goaway).append(text);
}

}  // namespace hawser::protocol::http2
