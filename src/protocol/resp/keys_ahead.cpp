#include "protocol/resp/keys_ahead.h"

namespace hawser::resp {
namespace {

constexpr std::size_t arguments_max = 16;
constexpr std::size_t argument_bytes_max = std::size_t{1} << 24;

// Takes "TYPE", digits and CR LF from the begin of `text`. Returns false if they are not there.
bool take_header(std::string_view& text, char type, std::size_t& number) noexcept {
  if (text.size() < 4 || text[0] != type) return false;
  number = 0;
  std::size_t at = 1;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + static_cast<std::size_t>(text[at] - '0');
    if (number > argument_bytes_max) return false;
  }
  if (at == 1 || text.size() - at < 2 || text[at] != '\r' || text[at + 1] != '\n') return false;
  text.remove_prefix(at + 2);
  return true;
}

}  // namespace

std::size_t keys_ahead(Bytes bytes, std::span<std::string_view> keys) noexcept {
  std::string_view text = as_text(bytes);
  std::size_t found = 0;
  while (found < keys.size()) {
    std::size_t arguments = 0;
    if (!take_header(text, '*', arguments) || arguments < 2 || arguments > arguments_max) break;
    std::string_view key;
    std::size_t i = 0;
    for (; i < arguments; ++i) {
      std::size_t size = 0;
      if (!take_header(text, '$', size) || text.size() < size + 2) break;
      if (i == 1) key = text.substr(0, size);
      text.remove_prefix(size + 2);
    }
    if (i != arguments) break;
    keys[found++] = key;
  }
  return found;
}

}  // namespace hawser::resp
