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
  bool is_ours() const noexcept { return word_->load(std::memory_order_relaxed) != 0; }

 private:
  std::atomic<std::uint32_t>* word_;
};

}  // namespace hawser::transport::shm
