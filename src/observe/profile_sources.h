#pragma once

#include "observe/profile.h"
#include "profile/allocation_sampler.h"
#include "profile/cpu_sampler.h"
#include "profile/wait_sampler.h"

// Profiles from what the samplers have recorded, with the names of functions. Symbol tables of large programs take
// longer to read than a tick lasts, so this is work for a thread that may block.
namespace hawser::observe {

// The sampler was stopped. `hertz` samples in a second of processor time were asked for.
Profile cpu_profile(const CpuSampler& sampler, unsigned hertz, double seconds);

// The sampler was stopped. Without `with_idle`, threads that wait for work are left out.
Profile wait_profile(const WaitSampler& sampler, unsigned hertz, double seconds, bool with_idle);

// The pages show all allocations, or those that are still in use.
enum class AllocationView : unsigned char { allocated, live };

// The difference of two reports of one sampler; `before` is empty if the sampler began with the profile. The live
// numbers are those of `after`. If another sampler began in between, all numbers are those of `after`.
Profile allocation_profile(const AllocationSampler::Report& before, const AllocationSampler::Report& after,
                           AllocationView view);

}  // namespace hawser::observe
