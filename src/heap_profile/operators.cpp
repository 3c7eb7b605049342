// operator new and operator delete of a program that links the component heap_profile. They allocate with malloc(), as
// those of the standard library do, and notify the profile of allocations. A build with a sanitizer keeps the
// sanitizer's own, which find more faults.
#include "heap_profile/operators.h"

#include <cstddef>
#include <cstdlib>
#include <new>

#include "heap/allocation_hook.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAWSER_SANITIZED_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define HAWSER_SANITIZED_HEAP 1
#endif
#endif

namespace hawser {
namespace {

using detail::allocation_hook::Operators;

#ifdef HAWSER_SANITIZED_HEAP
constexpr Operators built = Operators::sanitized;
#else
constexpr Operators built = Operators::present;
#endif

const bool noted = (note_operators(), true);

}  // namespace

void note_operators() noexcept { detail::allocation_hook::operators.store(built); }

}  // namespace hawser

#ifndef HAWSER_SANITIZED_HEAP
namespace {

// Calls the new-handler until the allocation succeeds or no handler is set. Null then.
template <class Allocate>
[[gnu::noinline]] void* allocate_with_handler(Allocate allocate) {
  for (;;) {
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) return nullptr;
    handler();
    if (void* const memory = allocate()) return memory;
  }
}

inline void* allocate(std::size_t bytes, const void* caller) {
  const std::size_t size = bytes == 0 ? 1 : bytes;
  void* memory = std::malloc(size);
  if (memory == nullptr) [[unlikely]]
    memory = allocate_with_handler([size] { return std::malloc(size); });
  hawser::detail::allocation_hook::allocated(memory, bytes, caller);
  return memory;
}

inline void* allocate(std::size_t bytes, std::align_val_t alignment, const void* caller) {
  const auto align = static_cast<std::size_t>(alignment);
  // A multiple of the alignment, as aligned_alloc() demands. Too many bytes fail below.
  const std::size_t rounded = ((bytes == 0 ? 1 : bytes) + align - 1) / align * align;
  if (rounded < bytes) return nullptr;
  void* memory = std::aligned_alloc(align, rounded);
  if (memory == nullptr) [[unlikely]] {
    memory = allocate_with_handler([align, rounded] { return std::aligned_alloc(align, rounded); });
  }
  hawser::detail::allocation_hook::allocated(memory, bytes, caller);
  return memory;
}

inline void* or_throw(void* memory) {
  if (memory == nullptr) [[unlikely]]
    throw std::bad_alloc();
  return memory;
}

// For the forms that do not throw. A new-handler may throw bad_alloc.
template <class... Arguments>
void* or_null(Arguments... arguments) noexcept {
  try {
    return allocate(arguments...);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

inline void release(void* memory) noexcept {
  hawser::detail::allocation_hook::freed(memory);
  std::free(memory);
}

}  // namespace

// The address to which an operator returns lies in the function that allocates.
#define HAWSER_CALLER __builtin_return_address(0)

void* operator new(std::size_t bytes) { return or_throw(allocate(bytes, HAWSER_CALLER)); }
void* operator new[](std::size_t bytes) { return or_throw(allocate(bytes, HAWSER_CALLER)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return or_null(bytes, HAWSER_CALLER); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return or_null(bytes, HAWSER_CALLER); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate(bytes, alignment, HAWSER_CALLER));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return or_throw(allocate(bytes, alignment, HAWSER_CALLER));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return or_null(bytes, alignment, HAWSER_CALLER);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return or_null(bytes, alignment, HAWSER_CALLER);
}

void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { release(memory); }
#endif
