#pragma once

namespace hawser {

// Lets a processor rest within a loop that waits for memory to change.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // On most processors YIELD does nothing. ISB is used instead; its time was not measured here.
  asm volatile("isb" ::: "memory");
#endif
}

// True if the tables and registers of base/sleeping_stack.h are those of this processor. On 64-bit Arm the kernel shows
// too little: a function that calls no other one, such as that of a system call, has its return address in a register.
#if defined(__x86_64__)
inline constexpr bool walks_sleeping_stacks = true;
#else
inline constexpr bool walks_sleeping_stacks = false;
#endif

}  // namespace hawser
