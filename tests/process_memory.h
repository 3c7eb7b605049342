#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// Searches memory for secrets.
namespace hawser::testing_tools {

struct Needle {
  std::string name;
  std::string bytes;  // Few enough that a part of a larger secret is found.
};

// Adds the names of the needles that lie in `memory`.
inline void find_needles(std::string_view memory, const std::vector<Needle>& needles, std::set<std::string>& found) {
  for (const Needle& one : needles) {
    if (memmem(memory.data(), memory.size(), one.bytes.data(), one.bytes.size()) != nullptr) found.insert(one.name);
  }
}

struct Searched {
  std::set<std::string> found;
  std::size_t bytes = 0;  // 0: this process may not read the memory.
  bool excluded = false;  // The process has memory that core dumps leave out, besides that of the kernel.
};

// Searches the memory of another process that a core dump may contain: every mapping that is not marked with
// MADV_DONTDUMP, whatever /proc/PID/coredump_filter leaves out. The process should not change its memory meanwhile.
inline Searched search_process(pid_t process, const std::vector<Needle>& needles) {
  Searched result;
  const std::string folder = "/proc/" + std::to_string(process);
  const int memory = open((folder + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  if (memory < 0) return result;
  std::ifstream maps(folder + "/smaps");
  std::string part;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  unsigned long resident = 0;
  unsigned long swapped = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long first = 0;
    unsigned long last = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, access) == 3) {
      begin = first;
      end = last;
      continue;
    }
    if (std::sscanf(line.c_str(), "Rss: %lu kB", &resident) == 1) continue;
    if (std::sscanf(line.c_str(), "Swap: %lu kB", &swapped) == 1) continue;
    if (!line.starts_with("VmFlags:")) continue;
    line += ' ';
    if (line.contains(" dd ")) {
      result.excluded = result.excluded || (resident != 0 && !line.contains(" io ") && !line.contains(" pf "));
      continue;
    }
    if (resident == 0 && swapped == 0) continue;
    // Parts overlap, so that no needle is cut.
    constexpr std::size_t part_bytes = std::size_t{8} << 20;
    constexpr std::size_t overlap_bytes = 256;
    for (std::uint64_t at = begin; at < end; at += part_bytes - overlap_bytes) {
      part.resize(std::min<std::uint64_t>(part_bytes, end - at));
      const ssize_t size = pread(memory, part.data(), part.size(), static_cast<off_t>(at));
      if (size <= 0) break;
      result.bytes += static_cast<std::size_t>(size);
      find_needles({part.data(), static_cast<std::size_t>(size)}, needles, result.found);
      if (end - at <= part_bytes) break;
    }
  }
  close(memory);
  return result;
}

}  // namespace hawser::testing_tools
