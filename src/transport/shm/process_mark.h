#pragma once

#include <atomic>
#include <cstdint>

namespace hawser::transport::shm {

// Distinguishes the process that made it from children that fork() made later. Children must not access what their
// parent shares with a peer. It is one page, which the kernel clears in a child.
class ProcessMark {
 public:
  // Throws std::bad_alloc.
  ProcessMark();
  ProcessMark(const ProcessMark&) = delete;
  ProcessMark& operator=(const ProcessMark&) = delete;
  ~ProcessMark();

  // False in a child.
  bool is_ours() const noexcept {
    const std::uint32_t mark = word_->load(std::memory_order_relaxed);
    return mark == cleared_in_children || (mark == not_cleared && made_here());
  }

 private:
  static constexpr std::uint32_t cleared_in_children = 1;
  static constexpr std::uint32_t not_cleared = 2;  // The kernel, or a filter of system calls, has refused it.

  bool made_here() const noexcept;

  std::atomic<std::uint32_t>* word_;
  int process_;
};

}  // namespace hawser::transport::shm
