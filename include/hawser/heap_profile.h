#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/error.h"

// Profiles of allocations: which functions allocate, and which memory is still in use. Component hawser::heap_profile,
// which replaces operator new and operator delete of the program that links it. Linking it is enough for the pages
// /profile/allocations and /profile/heap (hawser/pages.h). While no profile is taken, new and delete cost five
// instructions more each. docs/operations.md, "Allocations".
//
//   const auto profile = hawser::HeapProfile::begin();   // Then /profile/heap shows memory allocated since this line.
namespace hawser {

struct HeapProfileOptions {
  // Allocated bytes for each sample, on average. A smaller interval gives more precise numbers and costs more time. 1
  // byte to 1 GiB.
  std::size_t interval_bytes = std::size_t{512} << 10;
  // Sampled allocations that are followed until they are freed, 1 to 4,194,304; 48 bytes each for a power of two,
  // otherwise up to 96. Further allocations are missing in the numbers of memory in use, and the page has their number.
  std::size_t live_max = 65'536;
  // Different stacks, 1 to 262,144; at most 584 bytes each. Allocations of further stacks are shown as one, and the
  // page has their number.
  std::size_t stacks_max = 8'192;
  std::uint64_t seed = 0;  // Chooses the samples; 0: a seed from the kernel.
};

// Samples the allocations of all threads while it exists; the pages show the result. One exists at a time in a process.
// A child process made by fork() has no profile. It may be made and destroyed on any thread.
class HeapProfile {
 public:
  // Fails with `overloaded` while another profile of allocations is taken, for example by a page; with
  // `invalid_argument` for options out of range; with `unavailable` if the program was built with a sanitizer, whose
  // operators are not replaced, or if there is not enough memory.
  static Result<HeapProfile> begin(const HeapProfileOptions& options = {});
  HeapProfile(HeapProfile&& other) noexcept;
  HeapProfile& operator=(HeapProfile&& other) noexcept;
  ~HeapProfile();  // Ends the profile. What was recorded is lost.

 private:
  struct State;
  explicit HeapProfile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace hawser
