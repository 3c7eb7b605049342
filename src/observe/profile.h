#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace hawser::observe {

// Numbers of a process by stacks of functions: processor time, time of waits, or allocations.
struct Profile {
  // One of the numbers of each stack, with the names that pprof knows.
  struct Kind {
    std::string_view type;  // Such as "cpu".
    std::string_view unit;  // "count", "nanoseconds" or "bytes".
    bool operator==(const Kind&) const = default;
  };
  struct Stack {
    std::string thread;                      // Empty: stacks of all threads.
    std::vector<std::string> frames;         // Names of functions, the outermost first.
    std::vector<std::uint64_t> values = {};  // One of each kind.
    std::string group = {};                  // The outermost frame, before the thread; empty: none.
  };
  std::vector<Kind> kinds = {};
  std::size_t shown = 0;  // The kind that the flame graph and the folded text have.
  Kind period_kind = {};
  std::uint64_t period = 0;  // The value of that kind between two samples.
  std::vector<Stack> stacks = {};
  std::chrono::system_clock::time_point begin{};
  double seconds = 0;
  std::string caption = {};  // Says how it was measured, and how much is missing.
};

// The largest value that pprof can read. Sums and estimates beyond it are this value.
inline constexpr std::uint64_t profile_value_max = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t profile_sum(std::uint64_t a, std::uint64_t b) noexcept {
  return std::min(a, profile_value_max) + std::min(b, profile_value_max - std::min(a, profile_value_max));
}

// The shown value of a profile, for people: "12 samples", "1.50 s", "3.2 MiB".
std::string value_text(std::uint64_t value, std::string_view unit);
// A line for each stack: names separated by semicolons, and the value. The format of flamegraph.pl.
std::string folded_text(const Profile& profile);
// The format of pprof (profile.proto), not compressed.
std::string pprof_bytes(const Profile& profile);
// A flame graph: each box is a function, as wide as its part of the whole, above its caller. It needs no scripts and
// no styles. Boxes too narrow to be seen are left out.
std::string flame_svg(const Profile& profile);

}  // namespace hawser::observe
