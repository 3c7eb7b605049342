#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "hawser/error.h"

// Memory for secrets. Core dumps do not contain it (MADV_DONTDUMP), and each block is wiped when it is released.
// docs/decisions/0057-secrets-are-in-memory-that-is-not-dumped.md.
namespace hawser {

// The blocks that a thread keeps for its next use, in secret_memory.cpp.
struct SecretCache;

// One range of addresses of the process, which is reserved on first use and never released: threads and OpenSSL may use
// it until the process ends. It grows as far as its users hold blocks; memory of large and of many released blocks
// returns to the system. After fork() both processes have it. Thread-safe.
class SecretMemory {
 public:
  static constexpr std::size_t alignment = 16;
  // The range, if the limits of the process allow it; otherwise a smaller one, of range_bytes_min at least.
  static constexpr std::size_t range_bytes = std::size_t{64} << 30;
  static constexpr std::size_t range_bytes_min = std::size_t{16} << 20;

  // Reserves the range. Fails with limit_exceeded if it has fewer than `bytes_min` bytes.
  static Result<void> reserve(std::size_t bytes_min) noexcept;
  // A block that is aligned to `alignment`. Its contents are indeterminate. Null if there is no memory.
  static void* allocate(std::size_t bytes) noexcept;
  // Wipes the block. `block` may be null.
  static void deallocate(void* block) noexcept;
  // As deallocate(), for blocks that may be buffers of messages. Wiping one for each message would cost a tenth of the
  // throughput of TLS. So the calling thread keeps up to two blocks of each size above 16 KiB without wiping them, for
  // its next buffers. They are wiped when it keeps others instead, or ends.
  static void deallocate_buffer(void* block) noexcept;
  // True if `block` lies in the range.
  static bool contains(const void* block) noexcept;
  // The usable bytes of a block, at least as many as were requested.
  static std::size_t size_of(const void* block) noexcept;

  // The blocks that the calling thread keeps for its next use.
  static const SecretCache& local_cache() noexcept;
  static std::size_t cached_bytes_max() noexcept;  // Per thread.
  // Any thread, while the thread of the cache exists.
  static std::size_t cached_bytes(const SecretCache& cache) noexcept;
  // Wipes and returns what the calling thread keeps.
  static void release_cache() noexcept;
};

// For containers of secrets. A std::string would keep short texts outside: use SecretText.
template <class T>
struct SecretAllocator {
  using value_type = T;

  SecretAllocator() noexcept = default;
  template <class U>
  SecretAllocator(const SecretAllocator<U>&) noexcept {}

  T* allocate(std::size_t count) {
    static_assert(alignof(T) <= SecretMemory::alignment);
    void* const made = count > std::numeric_limits<std::size_t>::max() / sizeof(T)
                           ? nullptr
                           : SecretMemory::allocate(count * sizeof(T));
    if (made == nullptr) throw std::bad_alloc();
    return static_cast<T*>(made);
  }
  void deallocate(T* block, std::size_t) noexcept { SecretMemory::deallocate(block); }
  template <class U>
  bool operator==(const SecretAllocator<U>&) const noexcept {
    return true;
  }
};

template <class T>
using SecretVector = std::vector<T, SecretAllocator<T>>;
using SecretBytes = SecretVector<unsigned char>;
// Texts of fewer than 16 bytes lie in the object itself.
using SecretString = std::basic_string<char, std::char_traits<char>, SecretAllocator<char>>;

// A text that lies in secret memory, however short it is.
class SecretText {
 public:
  SecretText() noexcept = default;
  explicit SecretText(std::string_view text) : bytes_(text.begin(), text.end()) {}

  std::string_view view() const noexcept { return {bytes_.data(), bytes_.size()}; }
  char* data() noexcept { return bytes_.data(); }
  std::size_t size() const noexcept { return bytes_.size(); }
  void append(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }
  void append(char one) { bytes_.push_back(one); }

 private:
  SecretVector<char> bytes_;
};

// The base of classes that contain secrets. Objects made by `new` lie in secret memory.
struct InSecretMemory {
  static void* operator new(std::size_t bytes);
  static void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept;
  static void operator delete(void* block) noexcept;
  static void operator delete(void* block, const std::nothrow_t&) noexcept;
};

// The usable bytes of a block of malloc().
std::size_t usable_bytes_of_heap(void* block) noexcept;

// Overwrites memory, also if nobody reads it afterwards.
void wipe(void* begin, std::size_t bytes) noexcept;
// Overwrites the whole memory of a text, and makes it empty.
void wipe(std::string& text) noexcept;

}  // namespace hawser
