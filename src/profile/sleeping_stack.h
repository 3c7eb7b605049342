#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/descriptor.h"

namespace hawser {

// Reads memory of this process. Memory that does not exist is an error and no fault, so another thread may end
// meanwhile. Reads at most pages_max pages until forget(). Used by one thread at a time.
class OwnMemory {
 public:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t pages_max = 256;

  OwnMemory();
  bool usable() const noexcept { return file_.valid(); }
  // The next reads see the memory as it is then.
  void forget() noexcept { pages_.clear(); }
  bool read(std::uintptr_t at, std::span<std::uint8_t> to);
  std::optional<std::uint64_t> word(std::uintptr_t at);

 private:
  struct Page {
    std::uintptr_t begin = 0;
    bool exists = false;
    std::array<std::uint8_t, page_bytes> bytes;
  };
  const Page* page_of(std::uintptr_t at);

  Descriptor file_;
  std::vector<Page> pages_;
};

// The stack of a thread that is in a system call, from its two registers that the kernel shows.
struct SleepingStack {
  static constexpr std::size_t frames_max = 64;  // Callers beyond are left out.
  // Return addresses, the innermost first; the first one is where the thread is.
  std::array<const void*, frames_max> frames{};
  std::size_t depth = 0;
  bool complete = false;  // It ends with the first function of the thread.
  bool found = false;     // One of its functions is one of those that were looked for.
};

// Walks the stack by the tables of the loaded files, which must stay loaded. `looked_for` are beginnings of functions.
// Only where walks_sleeping_stacks is true. The kernel does not show rbp. A function that needs it, and whose callees
// have not saved it, is looked for on the stack: by the return address behind the call of this function, and the rbp
// below it.
SleepingStack walk_sleeping(OwnMemory& memory, std::uintptr_t instruction, std::uintptr_t stack,
                            std::span<const void* const> looked_for);

}  // namespace hawser
