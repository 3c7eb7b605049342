#pragma once

#include <array>
#include <string>
#include <string_view>

namespace hawser {

// Decodes four characters, which end the text if `last`. Returns the number of bytes, at most 3, or -1 if they are not
// Base64.
int decode_base64_group(std::string_view four, bool last, std::array<char, 3>& out);

// Appends `bytes` in Base64 with padding.
void encode_base64(std::string_view bytes, std::string& out);
// Appends the decoded bytes to a string, also to a SecretString. False for text that is not Base64 with padding; `out`
// may have grown then.
template <class Text>
bool decode_base64(std::string_view text, Text& out) {
  if (text.size() % 4 != 0) return false;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::array<char, 3> bytes;
    const int count = decode_base64_group(text.substr(i, 4), i + 4 == text.size(), bytes);
    if (count < 0) return false;
    out.append(bytes.data(), static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace hawser
