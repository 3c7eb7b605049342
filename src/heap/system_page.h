#pragma once

#include <unistd.h>

#include <cstddef>

namespace hawser {

// Size of a page of this system: 4 KiB on x86-64; 4, 16 or 64 KiB on 64-bit Arm.
inline std::size_t system_page_bytes() noexcept {
  static const std::size_t bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace hawser
