#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace hawser::observe {

// The processor time of a process, by functions.
struct Profile {
  struct Stack {
    std::string thread;
    std::vector<std::string> frames;  // Names of functions, the outermost first.
    std::uint64_t samples = 0;
  };
  std::vector<Stack> stacks = {};
  std::chrono::system_clock::time_point begin{};
  double seconds = 0;
  unsigned hertz = 0;      // Samples in a second of processor time.
  std::uint64_t lost = 0;  // Samples for which there was no room.
};

// A line for each stack: names separated by semicolons, and the number of samples. The format of flamegraph.pl.
std::string folded_text(const Profile& profile);
// The format of pprof (profile.proto), not compressed.
std::string pprof_bytes(const Profile& profile);
// A flame graph: each box is a function, as wide as its part of the samples, above its caller. It needs no scripts and
// no styles. Boxes too narrow to be seen are left out.
std::string flame_svg(const Profile& profile);

}  // namespace hawser::observe
