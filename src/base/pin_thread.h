#pragma once

namespace hawser {

// Binds the calling thread to one processor, counted from 0. False if there is no such processor for this process.
bool pin_thread(int cpu) noexcept;

}  // namespace hawser
