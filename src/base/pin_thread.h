#pragma once

namespace hawser {

// Binds the calling thread to one processor, counted from 0. Returns false if this process may not use such a
// processor.
bool pin_thread(int cpu) noexcept;

}  // namespace hawser
