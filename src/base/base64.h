#pragma once

#include <string>
#include <string_view>

#include "base/secret_memory.h"

namespace hawser {

// Appends `bytes` in Base64 with padding.
void encode_base64(std::string_view bytes, std::string& out);
// Appends the decoded bytes. False for text that is not Base64 with padding; `out` may have grown then.
bool decode_base64(std::string_view text, std::string& out);
bool decode_base64(std::string_view text, SecretString& out);

}  // namespace hawser
