#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// Allocators call these functions for the profile of allocations. The component heap_profile calls them from operator
// new and operator delete, and other parts of the library for mappings. While no profile is taken, a call is one load
// and one branch.
namespace hawser::detail::allocation_hook {

// The number of the profile that is being taken; 0: none.
extern constinit std::atomic<std::uint32_t> profile;
// How the program's operator new and delete were built: they call these functions or not.
enum class Operators : std::uint8_t { absent, present, sanitized };
extern constinit std::atomic<Operators> operators;

// Counts an allocation; every so many bytes it is recorded. `caller` is an address in the function that allocated:
// frames inside of it are left out of the stack.
void count(void* memory, std::size_t bytes, const void* caller) noexcept;
// Forgets the allocation if it was recorded. Called before the memory can be allocated again.
void forget(void* memory) noexcept;

inline void allocated(void* memory, std::size_t bytes, const void* caller) noexcept {
  if (profile.load(std::memory_order_relaxed) != 0) [[unlikely]]
    count(memory, bytes, caller);
}
inline void freed(void* memory) noexcept {
  if (profile.load(std::memory_order_relaxed) != 0) [[unlikely]]
    forget(memory);
}

}  // namespace hawser::detail::allocation_hook
