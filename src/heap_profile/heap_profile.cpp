#include "hawser/heap_profile.h"

#include <utility>

#include "base/try.h"
#include "heap/allocation_hook.h"
#include "heap_profile/operators.h"
#include "profile/allocation_sampler.h"

namespace hawser {

struct HeapProfile::State {
  std::unique_ptr<AllocationSampler> sampler;
};

HeapProfile::HeapProfile(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HeapProfile::HeapProfile(HeapProfile&& other) noexcept = default;
HeapProfile& HeapProfile::operator=(HeapProfile&& other) noexcept = default;
HeapProfile::~HeapProfile() = default;

Result<HeapProfile> HeapProfile::begin(const HeapProfileOptions& options) {
  note_operators();
  if (detail::allocation_hook::operators.load() == detail::allocation_hook::Operators::sanitized) {
    return fail(Error::of_call(ErrorCode::unavailable,
                               "the program was built with a sanitizer, whose allocator is not replaced: take the "
                               "profile of a build without one"));
  }
  TRY(std::unique_ptr<AllocationSampler> begun, AllocationSampler::begin({.interval_bytes = options.interval_bytes,
                                                                          .live_max = options.live_max,
                                                                          .stacks_max = options.stacks_max,
                                                                          .seed = options.seed,
                                                                          .continuous = true}));
  auto state = std::make_unique<State>();
  state->sampler = std::move(begun);
  return HeapProfile(std::move(state));
}

}  // namespace hawser
