#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hawser/error.h"

namespace hawser {

// Samples the stacks of the threads of this process, each time a thread has used a period of processor time. One
// sampler exists at a time in a process. It uses SIGPROF. Used by one thread at a time. In a child process made by
// fork(), the parent's sampler has ended, and another one may begin.
class CpuSampler {
 public:
  static constexpr std::size_t frames_max = 64;       // Callers beyond are left out.
  static constexpr std::size_t samples_max = 16'384;  // Further samples are counted. 532 bytes each.
  static constexpr std::size_t threads_max = 1'024;   // Further threads are not sampled, and counted.

  struct Sample {
    std::uint32_t depth = 0;
    std::int32_t thread = 0;
    // Return addresses, the innermost first; the first one is where the thread was.
    std::array<const void*, frames_max> frames{};
  };

  // Begins to sample the threads that exist now, `hertz` times (1 to 1000) in a second of processor time of each; the
  // kernel may do it less often. Fails with `overloaded` while another sampler exists, and with `unavailable` if the
  // application handles SIGPROF itself or the kernel gives no timers.
  static Result<std::unique_ptr<CpuSampler>> begin(unsigned hertz);
  CpuSampler(const CpuSampler&) = delete;
  CpuSampler& operator=(const CpuSampler&) = delete;
  ~CpuSampler();

  // No thread writes samples any more, but for signals that are being handled. Takes no time; stop() follows.
  void end() noexcept;
  // Ends sampling. Afterwards no thread writes samples any more. Takes milliseconds for 1,000 threads, as begin() does.
  void stop() noexcept;
  // After stop().
  std::span<const Sample> samples() const noexcept;
  std::uint64_t lost() const noexcept;
  std::size_t threads() const noexcept { return timers_.size(); }
  // Threads that existed at the beginning and are not sampled: those beyond threads_max, and those for which the kernel
  // gives no timer (RLIMIT_SIGPENDING).
  std::size_t threads_left_out() const noexcept { return left_out_; }

 private:
  struct Ring;
  CpuSampler();

  std::unique_ptr<Ring> ring_;
  std::vector<void*> timers_;  // timer_t
  std::size_t left_out_ = 0;
  bool running_ = false;
  int process_ = 0;  // The one that began to sample.
};

// The name of a thread of this process, or its number if it has ended.
std::string thread_name(std::int32_t thread);

}  // namespace hawser
