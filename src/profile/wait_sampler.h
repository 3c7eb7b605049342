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
// made by fork(), the parent's sampler has ended, and another one may begin. fork(), dlopen() and dlclose() wait until
// the sample that is being taken is complete.
class WaitSampler {
 public:
  static constexpr std::size_t stacks_max = 4'096;   // The time of further stacks is counted. At most 1.5 KB each.
  static constexpr std::size_t threads_max = 1'024;  // Further threads are not sampled, and counted.
  static constexpr std::int64_t page_fault = -1;     // Instead of a system call.
  static constexpr std::int64_t no_processor = -2;   // The thread is ready to run, and others use the processors.

  struct Stack {
    std::string thread = {};  // The name that the thread had when it was seen first. Threads with one name are one.
    std::int64_t call = 0;    // Number of the system call, or one of the constants above.
    bool idle = false;        // One of its functions is in `idle`; see begin().
    bool complete = false;    // It ends with the first function of the thread.
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

  // Lets the thread of the sampler take a last sample and end. Does not wait for it.
  void end() noexcept;
  // The same, and waits for it. It takes as long as a sample of all threads: tens of milliseconds if there are many.
  void stop() noexcept;
  // The following are for the time after stop().
  const std::vector<Stack>& stacks() const noexcept;
  std::uint64_t lost_nanoseconds() const noexcept;  // The time of stacks for which there was no room.
  std::uint64_t passes() const noexcept;            // Samples of all threads.
  std::uint64_t failed_passes() const noexcept;     // The process had no descriptor for them.
  std::uint64_t threads() const noexcept;           // Threads that were seen.
  std::size_t threads_left_out() const noexcept;    // The most threads beyond threads_max in one sample.

 private:
  struct State;
  WaitSampler();

  std::unique_ptr<State> state_;
};

}  // namespace hawser
