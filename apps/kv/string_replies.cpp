#include "kv/string_replies.h"

#include <algorithm>

namespace hawser::kv {

char* StringReplies::more(std::size_t used, std::size_t bytes, std::size_t& size) {
  constexpr std::size_t step_min = 256;
  constexpr std::size_t step_max = std::size_t{64} << 10;
  used_ += used;
  size = bytes == 0 ? 0 : std::max(bytes, std::clamp(used_, step_min, step_max));
  // The bytes are not initialised: memory that no reply uses is not touched.
  text_.resize_and_overwrite(used_ + size, [](char*, std::size_t whole) { return whole; });
  return text_.data() + used_;
}

char* LongReply::more(std::size_t used, std::size_t bytes, std::size_t& size) {
  constexpr std::size_t text_bytes_max = std::size_t{64} << 10;
  protocol::resp::ReplyMemory& text = text_;
  if (pieces_ == nullptr) {
    if (bytes == 0 || text_.text().size() + bytes <= text_bytes_max) return text.more(used, bytes, size);
    text.more(used, 0, size);
    pieces_ = std::make_unique<ReplyPieces>();
    used = 0;
  }
  return static_cast<protocol::resp::ReplyMemory&>(*pieces_).more(used, bytes, size);
}

}  // namespace hawser::kv
