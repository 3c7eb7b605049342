#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hawser/error.h"

namespace hawser {

// Samples where the threads of this process wait, with their stacks. A thread of the sampler reads from /proc in which
// system call each other thread is, and walks the stack of that thread. It sends no signals and stops no thread, so
// that no wait ends early. One sampler exists at a time in a process. Used by one thread at a time. In a child process
// made by fork(), the parent's sampler has ended, and another one may begin.
class WaitSampler {
 public:
  static constexpr std::size_t stacks_max = 4'096;   // The time of further stacks is counted. About 300 bytes each.
  static constexpr std::size_t threads_max = 1'024;  // Further threads are not sampled.
  static constexpr std::int64_t page_fault = -1;     // Instead of a system call.
  static constexpr std::int64_t no_processor = -2;   // The thread is ready to run, and others use the processors.

  struct Stack {
    std::int32_t thread = 0;
    std::int64_t call = 0;  // Number of the system call, or one of the constants above.
    bool idle = false;      // One of its functions is in `idle`; see begin().
    bool complete = false;  // It ends with the first function of the thread.
    // Return addresses, the innermost first; the first one is where the thread was.
    std::vector<const void*> frames = {};
    std::uint64_t samples = 0;
    std::uint64_t nanoseconds = 0;
  };

  // Begins to sample all threads `hertz` times (1 to 1000) a second on average; less often if that would take more than
  // a tenth of a processor. `idle` are the beginnings of functions in which a thread waits for work. Fails with
  // `overloaded` while another sampler exists, and with `unavailable` if the kernel does not show the system calls of
  // threads or the system gives no thread.
  static Result<std::unique_ptr<WaitSampler>> begin(unsigned hertz, std::span<const void* const> idle);
  WaitSampler(const WaitSampler&) = delete;
  WaitSampler& operator=(const WaitSampler&) = delete;
  ~WaitSampler();

  // Takes a last sample and ends. It takes as long as a sample of all threads: a few milliseconds if there are many.
  void stop() noexcept;
  // The following are for the time after stop().
  const std::vector<Stack>& stacks() const noexcept;
  // The name that a thread had when it was seen first, or its number.
  std::string name_of(std::int32_t thread) const;
  std::uint64_t lost_nanoseconds() const noexcept;  // The time of stacks for which there was no room.
  std::uint64_t passes() const noexcept;            // Samples of all threads.

 private:
  struct State;
  WaitSampler();

  std::unique_ptr<State> state_;
};

}  // namespace hawser
