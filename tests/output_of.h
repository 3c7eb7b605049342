#pragma once

#include <array>
#include <cstdio>
#include <string>

namespace hawser::testing_tools {

// Runs a command of the shell. Returns what it writes.
inline std::string output_of(const std::string& command) {
  FILE* const pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string text;
  std::array<char, 4096> part;
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), size);
  pclose(pipe);
  return text;
}

}  // namespace hawser::testing_tools
