#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "hawser/error.h"

namespace hawser {

// Samples allocations with their stacks. Of the bytes that are allocated, one in `interval_bytes` is chosen at random
// (a Poisson process), and the allocation that contains it is recorded. So each number is an estimate: the real one is
// expected, and its relative error falls with the square root of the number of samples. One sampler exists at a time in
// a process. In a child process made by fork(), the parent's sampler has ended, and another one may begin.
class AllocationSampler {
 public:
  static constexpr std::size_t frames_max = 64;  // Callers beyond are left out.

  struct Options {
    std::size_t interval_bytes = std::size_t{512} << 10;  // 1 to 1 GiB.
    // Allocations that are remembered until they are freed, from 1 to 4,194,304; 48 bytes each. Further ones are
    // counted as allocated and not as live.
    std::size_t live_max = 65'536;
    // Different stacks, from 1 to 262,144; 568 bytes each. The allocations of further stacks are summed up without one.
    std::size_t stacks_max = 8'192;
    std::uint64_t seed = 0;   // 0: one from the kernel.
    bool continuous = false;  // It runs beside profiles that pages take; see continuous().
  };
  struct Totals {
    double allocated_objects = 0;
    double allocated_bytes = 0;
    double live_objects = 0;
    double live_bytes = 0;
    std::uint64_t samples = 0;
  };
  struct Stack {
    std::vector<const void*> frames = {};  // Return addresses, the innermost first; none: those without a stack.
    Totals totals = {};
  };
  struct Report {
    std::vector<Stack> stacks = {};
    std::uint32_t profile = 0;  // The number of the sampler in this process; 0: none exists.
    double seconds = 0;         // Since it began.
    std::size_t interval_bytes = 0;
    std::uint64_t without_stack = 0;  // Samples for whose stack there was no room.
    std::uint64_t not_followed = 0;   // Samples that are not in the live numbers, because there was no room.
  };

  // Fails with `overloaded` while another sampler exists, with `invalid_argument` if a limit is out of range, and with
  // `unavailable` if there is not enough memory. If the program does not call allocation_hook, only the allocations of
  // those parts are seen that do.
  static Result<std::unique_ptr<AllocationSampler>> begin(const Options& options);
  // No allocation is recorded any more, and the memory of the samples is returned.
  ~AllocationSampler();
  AllocationSampler(const AllocationSampler&) = delete;
  AllocationSampler& operator=(const AllocationSampler&) = delete;

  // Returns everything that was recorded since the sampler began. Any thread; empty if no sampler exists.
  static Report report();
  // Registers the handlers of fork(), once. begin() does so too.
  static void prepare_forks();
  // True while a sampler exists that began with Options::continuous.
  static bool continuous() noexcept;

 private:
  AllocationSampler() = default;
  int process_ = 0;
};

}  // namespace hawser
