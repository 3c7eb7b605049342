#pragma once

#include <string>
#include <vector>

namespace hawser::protocol::resp {

// A request as an array of bulk strings.
inline std::string request(const std::vector<std::string>& words) {
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words) text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return text;
}

}  // namespace hawser::protocol::resp
