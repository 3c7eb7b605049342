#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace hawser {

// The name of this host, as the kernel knows it. Empty: unknown.
inline std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

}  // namespace hawser
