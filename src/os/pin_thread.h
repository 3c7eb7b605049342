#pragma once

namespace hawser {

// Binds the calling thread to one processor, counted from 0. Returns false if this process may not use such a
// processor.
bool pin_thread(int cpu) noexcept;

// Lets the calling thread run on all processors of the process's first thread, because a thread inherits the binding of
// the one that has started it. Returns their number, 1 if it is unknown.
unsigned unpin_thread() noexcept;

}  // namespace hawser
