#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hawser/error.h"

// Profiles of allocations: which functions allocate, and which memory is still in use. Component hawser::heap_profile,
// which replaces operator new and operator delete of the program that links it. Linking it is enough for the pages
// /profile/allocations and /profile/heap; while no profile is taken, new and delete cost five instructions more.
//
//   const auto profile = hawser::HeapProfile::begin();   // Then /profile/heap shows what is live since here.
namespace hawser {

struct HeapProfileOptions {
  // Bytes of allocations for each sample, on average. Fewer give more precise numbers and cost more. 1 byte to 1 GiB.
  std::size_t interval_bytes = std::size_t{512} << 10;
  // Sampled allocations that are followed until they are freed, 1 to 4,194,304. They need 48 bytes each. Further ones
  // are missing in the live numbers, and the page has their number.
  std::size_t live_max = 65'536;
  // Different stacks, 1 to 262,144. They need 584 bytes each. Allocations of further stacks are shown as one, and the
  // page has their number.
  std::size_t stacks_max = 8'192;
  std::uint64_t seed = 0;  // Chooses the samples; 0: a seed from the kernel.
};

// Samples allocations while it exists, and the pages show it. One exists at a time in a process. Any thread.
class HeapProfile {
 public:
  // Fails with `overloaded` while another profile of allocations is taken, by a page for example; with
  // `invalid_argument` for options out of range; with `unavailable` if the program was built with a sanitizer, whose
  // allocator is not replaced, or if there is not enough memory.
  static Result<HeapProfile> begin(const HeapProfileOptions& options = {});
  HeapProfile(HeapProfile&& other) noexcept;
  HeapProfile& operator=(HeapProfile&& other) noexcept;
  ~HeapProfile();

 private:
  struct State;
  explicit HeapProfile(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace hawser
