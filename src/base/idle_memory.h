#pragma once

namespace hawser {

// Returns memory that the calling thread's caches have not used since the previous call. With `all`, the allocator's
// free memory is returned to the system too, if it is much: this takes some milliseconds for each 100 MiB, in which
// other threads may wait for the allocator.
void release_idle_memory(bool all) noexcept;

}  // namespace hawser
